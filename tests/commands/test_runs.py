"""`invoke runs` shows the trainings, their scores, and which local scores to trust."""

import csv
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import auth
from deploy.journal import SUBMIT, Journal, Request, State
from formats import checksums, npz
from pipeline import config as configs
from tests.deploy.invoked import Ended, Prompt
from tests.doors.given import copy_project

LOCAL = "127.0.0.1:41234"
PROMISES = [0.84, 0.86, 0.87, 0.89, 0.91, 0.93, 0.94]
KEEPS = [0.83, 0.86, 0.86, 0.88, 0.89, 0.93, 0.93]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Prompt]]:
    """A copy of this project, and one process for commands in it."""
    project = copy_project(tmp_path_factory.mktemp("copy"))
    with Prompt(project) as prompt:
        yield project, prompt


class World:
    """The project, with an empty runs/ in each test."""

    def __init__(self, project: Path, prompt: Prompt) -> None:
        self.runs, self.prompt, self.made = project / "runs", prompt, 0
        self.relay = project / "relay.toml"

    def typed(self, *words: object) -> Ended:
        """Run `invoke runs`, and return how it ends."""
        return self.prompt("runs", *words)

    def read(self, *words: object) -> dict[str, Any]:
        """Return the JSON of `invoke runs`."""
        code, shown, said = self.typed(*words, "--json")
        assert code == 0, said
        return dict(json.loads(shown.splitlines()[-1]))

    def training(self, folder: Path, local: float, rows: int = 400, **more: Any) -> str:
        """Write the output of a training, and return the sha256 of its weights.

        Args:
            more: fields of the config; `manifest`: keys of the manifest.
        """
        self.made += 1
        keys = more.pop("manifest", {})
        config = replace(configs.load("digits"), **more)
        folder.mkdir(parents=True)
        truth = np.arange(rows) % 10
        right = np.random.default_rng(self.made).permutation(rows) < round(local * rows)
        predicted = np.eye(10, dtype=np.float32)[np.where(right, truth, (truth + 1) % 10)]
        arrays = {"probabilities": predicted, "truth": truth}
        (folder / "validation.npz").write_bytes(npz.to_bytes(arrays))
        manifest = {
            "run_id": f"{config.name}-20261129-0{self.made // 60}{self.made % 60:02d}00-abcdef",
            "git_commit": "abcdef0123456789",
            "git_dirty": False,
            "config": config.to_json(),
            "custom_code": "",
            "metric": "accuracy",
            "greater_is_better": True,
            "metrics": {"validation_accuracy": local},
            "error": math.sqrt(local * (1 - local) / rows),
            "baseline": None,
            "seconds": {"total": 60.0},
            "earlier_seconds": 30.0,
            "held_out": "the same rows",
            "init_from": None,
            "weights_sha256": f"{self.made:064d}",
            **keys,
        }
        (folder / "artifact").mkdir()
        (folder / "artifact" / "manifest.json").write_bytes(checksums.sealed(manifest))
        return str(manifest["weights_sha256"])

    def rehearsal(self, local: float, hidden: float, **more: Any) -> Path:
        """Write the output of a dry run, and return the folder of its training."""
        home = self.runs / f"dry-run-{self.made}"
        training = home / "digits-train-tpu-v1"
        weights = self.training(training, local, **more)
        self.pulled(home, training, LOCAL)
        self.submitted(home, weights, LOCAL, score=hidden)
        error = math.sqrt(hidden * (1 - hidden) / 500)
        (home / "rehearsal.json").write_text(json.dumps({"score_error": error, "seconds": 60.0}))
        return training

    def pulled(self, home: Path, folder: Path, server: str, **bundle: Any) -> str:
        """Write the note of a pull and the bundle, and return the run."""
        slug, _, version = folder.name.rpartition("-v")
        note = {"run": f"ann/{slug}/{version}", "server": server, "at": "2026-11-29T00:00:00+00:00"}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".pulled.json").write_text(json.dumps(note))
        (folder / "bundle.json").write_text(json.dumps(bundle))
        return note["run"]

    def submitted(
        self, home: Path, weights: str, server: str, sent: str = "a" * 64, **scores: float | None
    ) -> None:
        """Write the output of an inference, and a submission in the journal."""
        version = len([*home.glob("digits-infer-gpu-v*")]) + 1
        folder = home / f"digits-infer-gpu-v{version}"
        self.pulled(home, folder, server, expect={"weights_sha256": weights})
        files = {"submission.csv": {"sha256": "a" * 64, "size": 1}}
        (folder / "outputs.json").write_text(json.dumps({"status": "complete", "files": files}))
        journal = Journal(home / "journal.sqlite", server)
        row = Request(SUBMIT, "digits", "ann/digits-infer-gpu", "digits", sha256=sent)
        row = journal.intend(replace(row, kernel_version=version))
        row = journal.record(row, State.SENT, before=0)
        row = journal.record(row, State.VERSION, number=version)
        journal.record(row, State.ENDED, status="COMPLETE", **scores)


@pytest.fixture
def world(copied: tuple[Path, Prompt]) -> Iterator[World]:
    """Return the project without any runs."""
    made = World(*copied)
    yield made
    shutil.rmtree(made.runs, ignore_errors=True)
    made.relay.unlink(missing_ok=True)


def test_the_table_shows_what_each_rehearsal_changed_and_how_it_scored(world):
    world.rehearsal(0.9, 0.88)
    momentum = configs.Optimizer(name="sgd", base_rate=0.004, base_batch=128)
    world.rehearsal(0.92, 0.89, name="digits_folds", folds=3, optimizer=momentum)

    code, shown, said = world.typed()

    head, columns, first, second, changes = shown.splitlines()
    assert (code, said) == (0, "")
    assert head == "digits, scored by accuracy, newest run last"
    assert columns.split()[:4] == ["#", "when", "run", "config"]
    assert " ".join(first.split()) == (
        "1 2026-11-29 00:01 dry run digits abcdef01 1 0.900 ± 0.015 0.880 ± 0.015 1.5"
    )
    assert "0.920 ± 0.014  0.890 ± 0.014" in second
    assert changes.strip() == "folds – → 3, optimizer.name adam → sgd"


def test_a_row_has_at_most_100_columns(world):
    """Even with all columns, and with long names and changes."""
    world.rehearsal(0.9, 0.88)
    folder = world.runs / "digits-train-tpu-v3"
    more = {"name": "digits_" + "long" * 8, "model": "mlp", "model_options": {"width": 9}}
    weights = world.training(folder, 0.92, manifest={"baseline": {"score": 0.7}}, **more)
    world.pulled(world.runs, folder, auth.SITE, machine_shape="TpuV5E8")
    world.submitted(world.runs, weights, auth.SITE, score=0.8912, private=0.8834)

    lines = world.typed()[1].splitlines()

    assert max(map(len, lines)) <= 100
    assert "private" in lines[1] and "0.8834" in lines[3] and "digits_longlonglong" in lines[3]


def test_a_run_whose_local_score_is_leaked_is_named(world, tmp_path):
    for local, hidden in zip(PROMISES, KEEPS, strict=True):
        world.rehearsal(local, hidden)
    world.rehearsal(0.99, 0.86, name="digits_leaky")
    page = tmp_path / "runs.html"

    _, shown, _ = world.typed("--page", page)

    (warning,) = (line for line in shown.splitlines() if line.startswith("Warning"))
    assert warning.startswith(
        "Warning: run 8 (digits_leaky) is off the line: hidden 0.86, expected"
    )
    assert warning.endswith("Its local score is too good, so check for a data leak.")
    text = page.read_text()
    assert "run 8 (digits_leaky) is off the line" in text
    assert text.count('<svg class="chart"') == 1 and "<script" not in text


def test_a_run_on_kaggle_shows_its_public_and_private_scores_and_its_quota(world):
    folder = world.runs / "digits-train-tpu-v3"
    weights = world.training(folder, 0.92)
    world.pulled(world.runs, folder, auth.SITE, machine_shape="TpuV5E8")
    world.submitted(world.runs, weights, auth.SITE, score=0.89, private=0.88)

    (row,) = world.read()["runs"]

    assert (row["public"], row["private"], row["hidden"]) == (0.89, 0.88, None)
    assert (row["place"], row["run"]) == ("TPU #3", "ann/digits-train-tpu/3")
    assert (row["quota_hours"], row["minutes"]) == (pytest.approx(1.5 / 60), 1.5)


def test_a_score_of_another_file_or_other_weights_does_not_belong_to_a_run(world):
    folder = world.runs / "digits-train-tpu-v1"
    weights = world.training(folder, 0.92)
    world.pulled(world.runs, folder, auth.SITE)
    world.submitted(world.runs, weights, auth.SITE, sent="b" * 64, score=0.5)
    world.submitted(world.runs, "c" * 64, auth.SITE, score=0.6)

    assert world.read()["runs"][0]["public"] is None


def test_a_later_look_at_a_submission_adds_its_private_score(world):
    folder = world.runs / "digits-train-tpu-v1"
    weights = world.training(folder, 0.92)
    world.pulled(world.runs, folder, auth.SITE)
    world.submitted(world.runs, weights, auth.SITE, score=0.89, private=None)
    journal = Journal(world.runs / "journal.sqlite", auth.SITE)
    row = Request(SUBMIT, "digits", "ann/digits-infer-gpu", "digits", kernel_version=1)
    row = journal.record(journal.intend(row), State.VERSION, number=1)
    journal.record(row, State.ENDED, status="COMPLETE", score=0.89, private=0.87)

    assert world.read()["runs"][0]["private"] == 0.87


def test_unknown_values_are_blank(world, tmp_path):
    nothing = {"metrics": {}, "error": None, "git_commit": ""}
    world.training(world.runs / "mine", 0.92, manifest=nothing)
    file = tmp_path / "runs.csv"

    _, shown, _ = world.typed("--csv", file)

    (row,) = csv.DictReader(file.read_text().splitlines())
    unknown = ("local", "local_error", "hidden", "public", "baseline", "quota_hours", "commit")
    assert [row[name] for name in unknown] == [""] * len(unknown)
    assert shown.splitlines()[1].split() == ["#", "when", "run", "config", "folds", "min"]


def test_two_runs_are_compared_with_the_error_of_their_difference(world):
    """The error is smaller if both held out the same rows."""
    world.rehearsal(0.90, 0.88)
    world.rehearsal(0.95, 0.93, epochs=9)
    world.rehearsal(0.95, 0.93, manifest={"held_out": "other rows"})

    _, shown, _ = world.typed(1, 2)
    (by, paired), (_, other) = (world.read(1, run)["differences"]["local"] for run in (2, 3))

    assert by == pytest.approx(0.05) and 0.01 < paired < other
    assert other == pytest.approx(math.hypot(*(math.sqrt(p * (1 - p) / 400) for p in (0.9, 0.95))))
    assert ["epochs", "40", "9"] in [line.split() for line in shown.splitlines()]
    assert "seed" not in shown and "+0.050 ± 0.0" in shown


def test_one_run_is_compared_with_its_parent(world):
    world.rehearsal(0.90, 0.88)
    world.rehearsal(0.95, 0.93, epochs=9)
    world.rehearsal(0.91, 0.90)

    assert world.typed(2)[1] == world.typed(1, 2)[1]


def test_a_run_without_a_parent_is_not_compared_with_itself(world):
    world.rehearsal(0.90, 0.88)
    world.rehearsal(0.95, 0.93, epochs=9)

    shown = world.typed(1)[1].splitlines()

    assert shown[:-1] == world.typed()[1].splitlines()
    assert shown[-1] == "Run 1 is the first, so it has no parent to compare with."
    assert world.read(1)["differences"] == {}


def test_scores_of_two_metrics_are_not_subtracted(world):
    world.rehearsal(0.90, 0.88)
    loss = {"metric": "log_loss", "metrics": {"validation_log_loss": 0.3}}
    world.rehearsal(0.90, 0.31, manifest=loss)

    assert world.read(1, 2)["differences"] == {}


def test_an_error_that_is_not_a_number_is_blank(world):
    world.rehearsal(0.90, 0.88)
    home = world.rehearsal(0.95, 0.93).parent
    (home / "rehearsal.json").write_text(json.dumps({"score_error": math.nan}))

    code, shown, _ = world.typed()

    assert code == 0 and "0.9300" in shown and "0.880 ± 0.015" in shown
    assert world.typed(1, 2)[0] == 0


def test_runs_within_a_minute_are_sorted_by_second(world):
    """Not by name, so that the later one finds its parent."""
    first, second = "z-20261129-000101-abcdef", "a-20261129-000102-abcdef"
    world.rehearsal(0.90, 0.88, manifest={"run_id": first})
    world.rehearsal(0.91, 0.88, manifest={"run_id": second, "init_from": {"run_id": first}})

    found = world.read()["runs"]

    assert [(row["run_id"], row["parent"]) for row in found] == [(first, None), (second, 1)]


def test_a_run_is_listed_once_and_runs_with_equal_weights_are_kept_apart(world):
    """A pull may keep an older copy; the same config and seed give the same weights."""
    equal = {"weights_sha256": "d" * 64}
    world.rehearsal(0.90, 0.88, manifest=equal)
    world.rehearsal(0.90, 0.88, manifest=equal)
    pulled = world.runs / "digits-train-tpu-v1"
    world.training(pulled, 0.91)
    shutil.copytree(pulled, pulled.with_name("digits-train-tpu-v1-aside-1"))

    assert [row["hidden"] for row in world.read()["runs"]] == [0.88, 0.88, None]


def test_a_training_elsewhere_is_added_by_its_folder(world, tmp_path):
    world.rehearsal(0.90, 0.88)
    world.training(tmp_path / "out", 0.91)
    world.training(tmp_path / "second", 0.92, seed=5)

    table = world.typed(tmp_path / "out")[1]
    both = world.typed(tmp_path / "out", tmp_path / "second")[1]

    assert table.splitlines()[3].split()[:4] == ["2", "2026-11-29", "00:02", "out"]
    assert ["seed", "0", "5"] in map(str.split, both.splitlines())


def test_a_run_that_starts_from_another_one_has_that_parent(world):
    first = world.rehearsal(0.90, 0.88)
    run_id = json.loads((first / "artifact" / "manifest.json").read_text())["run_id"]
    world.rehearsal(0.91, 0.88, seed=7)
    world.rehearsal(0.92, 0.88, manifest={"init_from": {"run_id": run_id}})

    assert world.read()["runs"][2]["parent"] == 1
    assert world.typed()[1].splitlines()[-1].strip() == "from 1: no change"


def test_the_competition_is_that_of_relay_toml_or_the_only_one(world):
    world.rehearsal(0.90, 0.88, competition="leaves")
    alone = world.read()["competition"]
    world.rehearsal(0.90, 0.88, competition="diabetes")
    world.relay.write_text('config = "diabetes"\n')

    assert (alone, world.read()["competition"]) == ("leaves", "diabetes")
    assert world.read("--competition", "leaves")["competition"] == "leaves"
    assert world.typed("--competition", "cats")[0] == 2


def test_a_competition_in_place_of_a_run_gets_advice(world):
    world.rehearsal(0.90, 0.88)

    assert world.typed("digits")[2].rstrip().endswith("invoke runs --competition digits")
    assert world.typed("cats")[2].rstrip().endswith("invoke runs")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1", "9"], "no run '9' in the table: expected a number from 1 to 1"),
        (["1", "1", "1"], "Cannot compare 3 runs: expected two"),
        (["--pge", "x"], "Did you mean --page?"),
    ],
)
def test_a_word_that_is_not_a_run_is_refused(world, words, said):
    world.rehearsal(0.90, 0.88)

    code, _, message = world.typed(*words)

    assert code == 2 and said in message and "Traceback" not in message


def test_a_run_with_a_corrupt_manifest_is_skipped_with_a_warning(world):
    world.rehearsal(0.90, 0.88)
    world.training(world.runs / "bad", 0.9)
    path = world.runs / "bad" / "artifact" / "manifest.json"
    path.write_text(path.read_text().replace("0.9", "1.0"))

    shown = world.typed()[1].splitlines()

    assert shown[0].startswith(f"Warning: skipped a run: {path}") and len(shown) == 4


def test_no_framework_starts(world):
    """The table takes a second."""
    world.rehearsal(0.90, 0.88)
    code = "import sys; sys.argv = ['invoke', 'runs']; from invoke.main import program\n"
    code += "try: program.run()\nexcept SystemExit: pass\n"
    code += "print({'keras', 'jax', 'tensorflow', 'pandas', 'matplotlib'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], cwd=world.relay.parent, capture_output=True)

    assert done.stdout.splitlines()[-1] == b"set()", done.stderr
