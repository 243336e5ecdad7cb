"""What `invoke prove own` claims, in its short form."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.config import Data
from proofs.own import folders, hidden_labels, rehearsed_files
from tests.proofs.short_rows import short_rows


def test_what_stopped_a_newcomer_does_so_no_more():
    """And a rehearsal computes what the whole run computes."""
    rows = short_rows("own")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) >= 12


def test_a_folder_of_the_proof_tells_no_label_by_name_or_order(tmp_path):
    """Or a network would learn that."""
    truth = folders.surfaces(tmp_path / "surfaces", 1, side=16, count=80)

    assert len(truth) == 20 and len(set(truth.values())) == 4
    assert not [name for name in truth for kind in folders.PLACES if kind in name]
    image = np.asarray(Image.open(next((tmp_path / "surfaces" / "to_name").iterdir())))
    assert image.shape == (16, 16, 3)


def order_of(folder: Path, order: list[int]) -> tuple[Path, dict[str, str]]:
    """Return a test set of 200 rows of two labels, asked for in an order, and its labels."""
    (folder / "test").mkdir(parents=True)
    names = [f"{number * 7919 % 1000:03d}" for number in range(200)]
    for number, name in enumerate(names):
        (folder / "test" / f"{name}.png").touch()
        os.utime(folder / "test" / f"{name}.png", ns=(0, order[number]))
    asked = "".join(f"{names[place]},cat\n" for place in order)
    (folder / "sample_submission.csv").write_text(f"id,label\n{asked}")
    return folder, {name: "cat" if n < 100 else "dog" for n, name in enumerate(names)}


def test_the_search_sees_labels_in_an_order(tmp_path):
    """The cats came first: by place in the table and by time, and not once both are shuffled."""
    orders = list(range(200)), np.random.default_rng(0).permutation(200).tolist()

    told, silent = (
        hidden_labels.orders(seen, Data(height=8, width=8, channels=1), truth)
        for seen, truth in (order_of(tmp_path / str(order[0]), order) for order in orders)
    )

    for about in ("place", "time"):
        assert told[about] > hidden_labels.MOST > silent[about]


def test_the_folder_of_the_search_tells_its_labels_by_every_name_and_place(tmp_path):
    """Else a search that finds nothing would show nothing."""
    folders.surfaces(tmp_path / "surfaces", 1, side=16, count=40)
    layout = Data(
        height=16, width=16, channels=3, train_csv=None, train_images="pictures", suffix="*"
    )

    marks = hidden_labels.copied(layout, tmp_path / "surfaces", tmp_path / "out")

    paths = sorted((tmp_path / "out" / "pictures").rglob("*.jpg"))
    assert sorted(marks) == sorted(path.stem for path in paths) and len(set(marks)) == 30
    assert {path.parent.name for path in paths} == set(folders.PLACES)
    by_time = sorted(paths, key=lambda path: path.stat().st_mtime_ns)
    labels = [path.parent.name for path in by_time]
    assert labels == sorted(labels)


def test_files_are_compared_by_what_they_hold(tmp_path):
    """Numbers of steps and folds do not count."""
    for place, step, more in (("one", 3, ""), ("other", 40, ',"late": 1')):
        folder = tmp_path / place / f"fold-{step}"
        folder.mkdir(parents=True)
        (folder / "history.csv").write_text("epoch,loss\n1,2\n")
        (folder / "progress.jsonl").write_text(f'{{"step": {step}{more}}}\n')
    (tmp_path / "other" / "left.txt").touch()
    one, other = (rehearsed_files.contents(tmp_path / place) for place in ("one", "other"))

    assert one["fold-#/history.csv"] == {"epoch", "loss"}
    assert rehearsed_files.differences(one, other) == ["left.txt", "fold-#/progress.jsonl: late"]
