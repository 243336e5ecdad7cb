"""An ensemble predicts the weighted mean of its members, of as many as there is time for."""

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from formats import checksums
from pipeline import artifact
from pipeline.__main__ import main
from pipeline.errors import ArtifactError, ConfigError
from pipeline.infer import ensemble, inference
from tests.pipeline import members
from tests.pipeline.rounding import EPS

WEIGHTS = {"run-1": 0.2, "run-2": 0.5, "run-3": 0.3}
BEST = ["run-3", "run-2", "run-1"]  # by their validation


@pytest.fixture(scope="module")
def folders(trained, tmp_path_factory):
    """Return the artifacts of three members, which no test changes."""
    folder = tmp_path_factory.mktemp("ensemble")
    for run, sharper in zip(WEIGHTS, (0.2, 0.5, 0.1), strict=True):
        scores = {"validation_accuracy": 0.9 - BEST.index(run) / 10}
        members.write(folder / run, trained[1] / "artifact", run, sharper=sharper, scores=scores)
    return {run: folder / run / "artifact" for run in WEIGHTS}


@pytest.fixture(scope="module")
def loaded(folders):
    """Return the artifacts."""
    return [artifact.load(folders[run]) for run in WEIGHTS]


def file(folders, path):
    """Write an ensemble.json of these members."""
    listed = [
        {
            "run_id": run,
            "weights_sha256": artifact.load(folder).manifest["weights_sha256"],
            "config": "tiny",
            "folder": str(folder),
            "weight": WEIGHTS[run],
        }
        for run, folder in folders.items()
    ]
    path.write_bytes(checksums.sealed({"members": listed}))
    return path


def test_predictions_are_the_weighted_mean(loaded, trained, tmp_path):
    """The lineage names each member with its weight, and each was checked; the best first."""
    infer, lines = partial(inference.infer, show=str, processes=1), list[str]()
    alone = [infer(each, trained[0], tmp_path).values for each in loaded]

    found = infer(loaded, trained[0], tmp_path, weights=[2, 5, 3], show=lines.append)

    wanted = np.average(np.array(alone, float), axis=0, weights=[*WEIGHTS.values()])
    assert np.abs(found.values - wanted).max() <= 8 * EPS
    assert np.ptp(alone, axis=0).max() > 0.1  # they do differ
    assert [line.split()[1].strip(":") for line in lines if line.startswith("Artifact")] == BEST
    told = json.loads((tmp_path / "members.json").read_text())
    assert [(each["run_id"], each["weight"], each["used"]) for each in told] == [
        (run, WEIGHTS[run], WEIGHTS[run]) for run in BEST
    ]
    golden = json.loads((tmp_path / "golden.json").read_text())
    assert [each["run_id"] for each in golden] == BEST


def test_the_command_infers_with_the_members_of_a_file(
    folders, trained, tiny, written_config, tmp_path, capsys
):
    """Where they were, or where they are given, in any order; without one it is refused."""
    path = file(folders, tmp_path / "ensemble.json")
    words = ["infer", "--config", str(written_config(tiny)), "--input", str(trained[0])]
    given = [word for run in BEST for word in ("--artifact", str(folders[run]))]
    one, two = tmp_path / "one", tmp_path / "two"

    assert main([*words, "--ensemble", str(path), "--output", str(one)]) == 0
    assert main([*words, "--ensemble", str(path), "--output", str(two), *given]) == 0
    assert main([*words, "--ensemble", str(path), "--output", str(two), *given[:4]]) == 2

    for name in ("submission.csv", "members.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert json.loads((one / "members.json").read_text())[0]["used"] == WEIGHTS[BEST[0]]
    said = capsys.readouterr()
    assert "Expected the artifact of each, once" in said.err and "Warning" not in said.out
    assert main([*words, "--output", str(one), *given[:2]]) == 0
    assert not (one / "members.json").exists()  # of the run before


def test_a_config_of_no_member_or_of_another_competition(loaded, trained, tiny, tmp_path):
    """The one counts little, which is said; the other is refused before anything is written."""
    lines: list[str] = []
    inference.infer(
        loaded[:1], trained[0], tmp_path, config=replace(tiny, name="none"), show=lines.append
    )
    assert "no model was trained with the config none" in lines[0]

    elsewhere = replace(tiny, competition="elsewhere")
    with pytest.raises(ConfigError, match="elsewhere, and the artifact run-3 for"):
        inference.infer(loaded, trained[0], tmp_path / "out", config=elsewhere, show=str)
    assert not (tmp_path / "out").exists()


def test_a_member_that_moved_is_named_with_what_to_do(
    folders, trained, tiny, written_config, tmp_path, capsys
):
    """Nobody gave --artifact; and to give --config twice is for an ensemble alone."""
    moved = shutil.copytree(folders["run-2"], tmp_path / "run-2")
    path = file({**folders, "run-2": moved}, tmp_path / "e.json")
    shutil.rmtree(moved)
    words = ["--config", written_config(tiny), "--input", trained[0], "--output", tmp_path / "out"]

    assert main(["infer", *map(str, words), "--ensemble", str(path)]) == 2

    assert f"the member in {moved}: there is no such folder" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["train", *map(str, words), "--config", "digits"])
    assert "expected one. Give it once." in capsys.readouterr().err


def test_a_member_whose_bytes_changed_is_refused(folders, tmp_path):
    """On Kaggle and at home; and another run's artifact in its place."""
    inputs, path = (
        tmp_path / "input" / "datasets" / "ann",
        file(folders, tmp_path / "ensemble.json"),
    )
    expect = json.loads(path.read_bytes())
    path.write_text(path.read_text().replace("0.5", "0.6"))  # it would count members otherwise
    with pytest.raises(ConfigError, match=r"is no ensemble: .*changed after it was written"):
        ensemble.read(path)
    for run, folder in folders.items():
        shutil.copytree(folder, inputs / run)
    found, weights = ensemble.mounted(inputs, expect)
    assert [each.manifest["run_id"] for each in found] == list(folders)
    assert weights == list(WEIGHTS.values())
    loud = {name: array + 1 for name, array in found[2].weights.items()}
    members.save(tmp_path, replace(found[2], weights=loud), "run-3")
    shutil.rmtree(inputs / "run-3")
    shutil.copytree(tmp_path / "artifact", inputs / "run-3")

    with pytest.raises(ArtifactError, match=r"weights_sha256=.*artifact of another run"):
        ensemble.mounted(inputs, expect)


@pytest.mark.parametrize("share", [0.0, 0.32, 0.88, 1.2])
def test_members_are_left_out_in_time(share, loaded, trained, tmp_path, monkeypatch):
    """From no time at all to more than enough: views first, then whole members, and the rest count
    more. The best stays, and a submission is there in any case.
    """
    clock, passes, fill = members.Clock(monkeypatch, 4), [], inference.of_member  # six blocks

    def noted(member, test, limit, work):
        before = clock.now
        found = fill(member, test, limit, work)
        passes.append((clock.now - before, found[0].left_out))
        return found

    monkeypatch.setattr(inference, "of_member", noted)
    two = [replace(each, config=replace(each.config, views=2)) for each in loaded]
    # Of each: the golden inputs by two folds, and six blocks by two folds and two views.
    one_view, whole = 2 + 6 * 2, 2 + 6 * 2 * 2
    seconds = share * 3 * whole / inference.SHARE
    given = {"weights": list(WEIGHTS.values()), "processes": 1, "show": str}

    found = inference.infer(two, trained[0], tmp_path, seconds=seconds, clock=clock, **given)

    told = json.loads((tmp_path / "members.json").read_text())
    used = {each["run_id"]: each["used"] for each in told if each["used"]}
    total = sum(WEIGHTS[run] for run in used)
    assert used == pytest.approx({run: WEIGHTS[run] / total for run in used}, abs=1e-12)
    assert BEST[0] in used and len(used) == {0.0: 1, 0.32: 1, 0.88: 3, 1.2: 3}[share]
    # Of the first member nothing is known before its golden inputs and its first block.
    assert clock.now <= max(seconds, 2 + 2 * 2)
    assert bool(found.left_out) == (share == 0)
    if len(used) < 3:
        # Views were left out first: but for the first block of each, there was one.
        assert all(spent <= one_view + 2 + 2 for spent, _ in passes)
    else:
        assert all(left == 0 for _, left in passes)
    assert all(spent == whole for spent, _ in passes) == (share > 1)
    assert len((tmp_path / "submission.csv").read_text().splitlines()) == 22


def test_a_member_is_read_by_its_own_config_s_file(loaded, trained, tiny, tmp_path, monkeypatch):
    """Which has to have the functions that it was trained with."""
    other = replace(loaded[1], config=replace(loaded[1].config, name="other", code="0" * 64))
    files = {"other": replace(tiny, name="other", code="1" * 64)}
    monkeypatch.setattr(inference.config_files, "named_files", lambda: files)
    monkeypatch.setattr(inference.config_files, "load", files.__getitem__)

    with pytest.raises(ConfigError, match=r"'other' are not those .*1111.*expected 0000"):
        inference.infer([loaded[0], other], trained[0], tmp_path, config=tiny, show=str)
