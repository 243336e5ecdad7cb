"""How the cells of runs are read, and how a page compares them with each other and with 2018."""

import html
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ConfigError
from tests.shipped import shipped
from workbench.benchmark import measurement, page
from workbench.benchmark.grid import Cell, feeds
from workbench.benchmark.images import Images, Part
from workbench.benchmark.measurement import FOLDER, Measured

TPU, GPU = "8 x TPU v5 lite (tpu)", "2 x Tesla T4 (gpu)"
ABOUT = {
    "devices": TPU, "work": page.WORK, "real": True, "precision": "float32", "config": "wrn",
    "images": "CIFAR-100", "versions": {"jax": "1"}, "cpus": 2,
}  # fmt: skip


def epochs(seconds: float, *, images: int = 49_152) -> list[dict]:
    """Return three epochs; the first compiles for 5 s."""
    return [
        {"seconds": seconds, "compiling": 5.0 * (number == 1), "images": images,
         "accuracy": 0.2 * number, "validated": 8192, "validation_accuracy": 0.1}
        for number in (1, 2, 3)
    ]  # fmt: skip


def cell(way: str, seconds: float = 30.0, pattern: int = 3, **about: object) -> Measured:
    feed = "own" if way == "ours" else "generator"
    which = Cell(way, pattern, feed, 256)
    return Measured(which, ABOUT | about, "2026-11-28T10:00:00", 1.0, epochs(seconds))


def keep(folder: Path, *cells: Measured) -> Path:
    for number, one in enumerate(cells):
        path = folder / FOLDER / str(number) / f"{one.cell}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(asdict(one)))
    return folder


def shown(path: str) -> str:
    """Return the text of a page."""
    body = Path(path).read_text(encoding="utf-8").partition("<body>")[2]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


def ratios(*cells: Measured, accuracy: float = 0.5, pattern: int = 3) -> dict[str, dict]:
    """Return the comparison by device and way."""
    rows = page.table(cells, accuracy)
    main = rows["feed"].isin([feeds(pattern)[0], "own"])
    found = page.compare(rows[(rows["pattern"] == pattern) & main], accuracy)
    return {row["label"]: row for row in found.to_dict("records")}


# How cells are read


def test_late_compilation_counts_once():
    """A smaller batch comes in epoch 2: later epochs take as long as the third."""
    seconds, compiling = (9.0, 6.0, 2.0), (5.0, 4.0, 0.0)
    found = [
        {**one, "seconds": took, "compiling": compiled, "images": 32}
        for one, took, compiled in zip(epochs(0.0), seconds, compiling, strict=True)
    ]
    one = replace(cell("ours"), epochs=found)

    summary = one.summary()

    assert (summary["mean"], summary["images"], summary["compiling"]) == (2.0, 32, 9.0)
    assert page.table([one], 0.5)["total"][0] == 1 + 9 + 4 + 19 * 2
    assert one.until(0.4) == {"reached": 2, "seconds": 16.0} and one.until(0.9) == {}


def test_of_two_measurements_of_a_cell_the_newer_one_counts(tmp_path):
    """Also before one that failed."""
    one = cell("fit")
    newer = replace(one, date="2026-11-29T10:00:00", epochs=epochs(20.0))
    failed = replace(newer, date="2026-11-30T10:00:00", epochs=[], reason="too large")
    others = cell("fit", config="other"), cell("fit", devices=GPU)
    folders = [keep(tmp_path / "a", newer, *others), keep(tmp_path / "b", one, failed)]

    for given in (folders, folders[::-1]):
        found = page.read(given)
        assert len(found) == 3 and newer in found
    with pytest.raises(ConfigError, match=r"has no cells/DEVICES/\*\.json(.|\n)*workbench bench"):
        page.read([tmp_path])


# How they compare


def test_the_published_headlines_follow_from_the_rows():
    """Between the smallest and the largest batch 24.31 times by later epochs and 21.9 by 20 epochs;
    3.17 at the same batch; by images counted 15.2 for pattern 1.
    """
    gpu, rows = "Colab GPU, 2018: fit", page.table([], 0.5)
    rows = rows[rows["pattern"] == 3].set_index(["devices", "batch"])
    slow, fast = rows.loc["Colab GPU", 64], rows.loc["TPU v2-8", 4096]

    assert round(slow["mean"] / fast["mean"], 2) == 24.31
    assert round(slow["total"] / fast["total"], 1) == 21.9
    assert round(ratios()[gpu]["at 256"], 2) == 3.17
    assert round(ratios(pattern=1)[gpu]["image at best batch"], 1) == 15.2


def test_the_config_of_2018_is_compared_with_2018():
    pixels = np.broadcast_to(np.uint8(0), (50_000, 32, 32, 3))
    part = Part(pixels, np.zeros(50_000, np.int32))
    config = shipped("cifar100_wrn")

    assert measurement.work(config, Images(part, part, 100, True, "")) == page.WORK


def test_half_the_images_in_half_the_time_are_not_faster():
    half = replace(cell("fit"), epochs=epochs(15.0, images=24_576))

    found = ratios(half, cell("ours", 30.0))

    assert [found[f"{TPU}, wrn: {way}"]["at 256"] for way in ("fit", "ours")] == [1.0, 1.0]


def test_only_equal_work_is_compared(tmp_path):
    """A small network on few images shows nothing about the devices of 2018."""
    small = [cell("ours", 10.0, work="small"), cell("fit", 20.0, work="small")]
    big = keep(tmp_path / "big", cell("ours", config="big"))

    first = page.write([keep(tmp_path / "small", *small), big], tmp_path, print)["compared"]
    second = page.write([big], tmp_path, print)["compared"]

    assert [(row["label"], row["at 256"]) for row in first] == [
        (f"{TPU}, wrn: ours", 1.0),
        (f"{TPU}, wrn: fit", 2.0),
    ]
    assert second[0]["label"] == f"{TPU}, big: ours" and second[1]["label"] == "TPU v2-8, 2018: fit"
    assert second[1]["at 256"] == pytest.approx(234.6 / 49_920 / (30 / 49_152))


def test_ways_are_compared_to_the_same_accuracy():
    """The third epoch reaches 0.6: 1 s before, and three epochs. Noise reaches none."""
    found = ratios(cell("ours"), cell("fit", 90.0), cell("ours", 1.0, devices=GPU, real=False))

    assert found[f"{TPU}, wrn: fit"]["to accuracy 0.5"] == pytest.approx(271 / 91)
    made = found[f"{GPU}, wrn: ours, random images"]
    assert made["to accuracy 0.5"] != made["to accuracy 0.5"]


# The page


def test_a_page_names_the_fastest_training(tmp_path):
    run = keep(tmp_path / "run", cell("ours"), cell("fit", 90.0))
    made = keep(tmp_path / "made", cell("ours", real=False))

    both, unreal, none = (
        page.write(runs, tmp_path / "page", print) for runs in ([run], [made], [])
    )

    json.dumps([both, unreal, none], allow_nan=False)  # as --json prints it
    assert f"was {TPU}, wrn: ours" in both["advice"]
    assert "in epoch 3, after 91.0 s including compilation" in both["advice"]
    assert "None of these runs" in unreal["advice"] and "results from 2018" in none["advice"]
    assert "3.17" in shown(none["page"])
    assert "2.98" in shown(page.write([run], tmp_path / "page", print)["page"])
    assert [Path(path).exists() for path in both["pictures"]] == [True]


def test_a_page_names_untrained_cells_and_an_unmeasured_pattern_is_refused(tmp_path):
    failed = replace(cell("fit"), epochs=[], reason="too large")
    run = keep(tmp_path / "run", cell("ours", work="small"), failed)

    found = page.write([run], tmp_path / "page", print)

    assert "n/a: fit-3-generator-256: too large" in shown(found["page"])
    with pytest.raises(ConfigError, match="--pattern 5: these runs only measured 3"):
        page.write([run], tmp_path / "page", print, pattern=5)
