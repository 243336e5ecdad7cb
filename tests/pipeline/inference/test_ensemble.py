"""An ensemble predicts the weighted mean of its members, of as many as there is time for."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from pipeline import artifact, ensemble
from pipeline.__main__ import main
from pipeline.errors import ArtifactError, ConfigError
from pipeline.inference import inference
from pipeline.storage import checksums
from tests.pipeline import members
from tests.pipeline.rounding import EPS

WEIGHTS = {"run-1": 0.2, "run-2": 0.5, "run-3": 0.3}
BEST = ["run-3", "run-2", "run-1"]  # by their validation


def quiet(line: str) -> None:
    """Take a line that a user would see."""


@pytest.fixture(scope="module")
def folders(trained, tmp_path_factory):
    """Return the artifacts of three members, which no test changes."""
    folder = tmp_path_factory.mktemp("ensemble")
    for number, sharper in ((1, 0.2), (2, 0.5), (3, 0.1)):
        run = f"run-{number}"
        scores = {"validation_accuracy": 0.9 - BEST.index(run) / 10}
        made = trained[1] / "artifact"
        members.write(folder / run, made, run, sharper=sharper, scores=scores)
    return {run: folder / run / "artifact" for run in WEIGHTS}


@pytest.fixture(scope="module")
def loaded(folders):
    """Return the artifacts."""
    return [artifact.load(folders[run]) for run in WEIGHTS]


def file(folders, path, **more):
    """Write an ensemble.json of these members."""
    listed = [
        {
            "run_id": run,
            "weights_sha256": artifact.load(folder).manifest["weights_sha256"],
            "config": "tiny",
            "folder": str(folder),
            "weight": weight,
        }
        for (run, folder), weight in zip(folders.items(), WEIGHTS.values(), strict=True)
    ]
    path.write_bytes(checksums.sealed({"members": listed, **more}))
    return path


@pytest.fixture(scope="module")
def alone(loaded, trained, tmp_path_factory):
    """Return the predictions of each member alone, by its run."""
    folder = tmp_path_factory.mktemp("alone")
    return {
        each.manifest["run_id"]: inference.infer(each, trained[0], folder, show=quiet).values
        for each in loaded
    }


def test_predictions_are_the_weighted_mean(loaded, alone, trained, tmp_path):
    """The lineage names each member with its weight, and each was checked; the best first."""
    lines: list[str] = []

    found = inference.infer(
        loaded, trained[0], tmp_path, weights=[2, 5, 3], show=lines.append, processes=1
    )

    wanted = sum(WEIGHTS[run] * alone[run].astype(float) for run in WEIGHTS)
    assert np.abs(found.values - wanted).max() <= 8 * EPS
    assert np.ptp([alone[run] for run in WEIGHTS], axis=0).max() > 0.1  # they do differ
    shown = [line.split()[1].strip(":") for line in lines if line.startswith("Artifact")]
    assert shown == BEST
    told = json.loads((tmp_path / "members.json").read_text())
    assert [each["run_id"] for each in told] == shown
    weights = [each["weight"] for each in told]
    assert weights == [each["used"] for each in told] == [WEIGHTS[run] for run in BEST]
    golden = json.loads((tmp_path / "golden.json").read_text())
    assert [each["run_id"] for each in golden] == shown
    assert len((tmp_path / "submission.csv").read_text().splitlines()) == 22


def test_the_command_infers_with_the_members_of_a_file(
    folders, alone, trained, tiny, written_config, tmp_path, capsys
):
    """Where they were, or where they are given, in any order; without one it is refused."""
    config = str(written_config(tiny))
    path = file(folders, tmp_path / "ensemble.json")
    words = ["infer", "--config", config, "--input", str(trained[0]), "--ensemble", str(path)]
    reordered = reversed(list(folders.values()))
    given = [word for folder in reordered for word in ("--artifact", str(folder))]

    assert main([*words, "--output", str(tmp_path / "one"), "--json"]) == 0
    assert main([*words, *given, "--output", str(tmp_path / "two")]) == 0
    assert main([*words, *given[:4], "--output", str(tmp_path / "three")]) == 2

    for name in ("submission.csv", "members.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert (
        json.loads((tmp_path / "one" / "members.json").read_text())[0]["used"] == WEIGHTS[BEST[0]]
    )
    said = capsys.readouterr()
    assert "Expected the artifact of each, once" in said.err
    assert "Warning" not in said.out
    last = ["--output", str(tmp_path / "one"), "--json", *given[:2]]
    assert main([*words[:5], *last]) == 0
    assert not (tmp_path / "one" / "members.json").exists()  # of the run before
    assert "members" not in json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_config_of_no_member_or_of_another_competition(loaded, trained, tiny, tmp_path):
    """The one counts little, which is said; the other is refused before anything is written."""
    lines: list[str] = []
    inference.infer(
        loaded[:1], trained[0], tmp_path, config=replace(tiny, name="none"), show=lines.append
    )
    assert "no model was trained with the config none" in lines[0]

    elsewhere = replace(tiny, competition="elsewhere")
    with pytest.raises(ConfigError, match="elsewhere, and the artifact run-3 for"):
        inference.infer(loaded, trained[0], tmp_path / "out", config=elsewhere, show=quiet)
    assert not (tmp_path / "out").exists()


def test_a_member_that_moved_is_named_with_what_to_do(
    folders, trained, tiny, written_config, tmp_path, capsys
):
    """Nobody gave --artifact; and to give --config twice is for an ensemble alone."""
    path = file(
        {**folders, "run-2": shutil.copytree(folders["run-2"], tmp_path / "run-2")},
        tmp_path / "e.json",
    )
    shutil.rmtree(tmp_path / "run-2")
    words = ["--config", str(written_config(tiny)), "--input", str(trained[0])]
    words += ["--output", str(tmp_path / "out")]

    assert main(["infer", *words, "--ensemble", str(path)]) == 2
    assert f"the member in {tmp_path / 'run-2'}: there is no such folder" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["train", *words, "--config", "digits"])
    assert "expected one. Give it once." in capsys.readouterr().err


def test_a_member_whose_bytes_changed_is_refused(folders, trained, tmp_path, flipped):
    """On Kaggle and at home: in any file; and another run's artifact in its place."""
    inputs, path = tmp_path / "input", file(folders, tmp_path / "ensemble.json")
    expect = json.loads(path.read_bytes())
    path.write_text(path.read_text().replace("0.5", "0.6"))  # it would count members otherwise
    with pytest.raises(ConfigError, match=r"is no ensemble: .*changed after it was written"):
        ensemble.read(path)
    for run, folder in folders.items():
        shutil.copytree(folder, inputs / "datasets" / "ann" / run)
    found, weights = ensemble.mounted(inputs, expect)
    assert [each.manifest["run_id"] for each in found] == list(folders)
    assert weights == list(WEIGHTS.values())
    place = inputs / "datasets" / "ann" / "run-3"
    for name in ("weights.npz", "golden.npz"):
        whole = (place / name).read_bytes()
        flipped(place / name, 1000)
        with pytest.raises(ArtifactError, match="other bytes"):
            ensemble.mounted(inputs, expect)
        (place / name).write_bytes(whole)
    other = artifact.load(place)
    members.save(tmp_path / "again", replace(other, prior=other.prior / 2), "run-3")
    loud = {name: array + 1 for name, array in other.weights.items()}
    members.save(tmp_path / "again", replace(other, weights=loud), "run-3")
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "again" / "artifact", place)
    with pytest.raises(ArtifactError, match=r"weights_sha256=.*artifact of another run"):
        ensemble.mounted(inputs, expect)


@pytest.mark.parametrize("share", [0.0, 0.06, 0.32, 0.5, 0.88, 1.2])
def test_members_are_left_out_in_time(share, loaded, alone, trained, tmp_path, monkeypatch):
    """From no time at all to more than enough: views first, then whole members, and the rest count
    more. The best stays, and a submission is there in any case.
    """
    clock, passes = members.Clock(monkeypatch, 4), []  # six blocks
    fill = inference.of_member

    def noted(member, test, limit, work):
        before = clock.now
        found = fill(member, test, limit, work)
        passes.append((member.manifest["run_id"], clock.now - before, found[0].left_out))
        return found

    monkeypatch.setattr(inference, "of_member", noted)
    two = [replace(each, config=replace(each.config, views=2)) for each in loaded]
    # Of each: the golden inputs by two folds, and six blocks by two folds and two views.
    one_view, whole = 2 + 6 * 2, 2 + 6 * 2 * 2
    seconds = share * 3 * whole / inference.SHARE

    found = inference.infer(
        two,
        trained[0],
        tmp_path,
        weights=list(WEIGHTS.values()),
        seconds=seconds,
        clock=clock,
        processes=1,
        show=quiet,
    )

    told = {each["run_id"]: each for each in json.loads((tmp_path / "members.json").read_text())}
    used = {run: each["used"] for run, each in told.items() if each["used"]}
    total = sum(WEIGHTS[run] for run in used)
    assert used == pytest.approx({run: WEIGHTS[run] / total for run in used}, abs=1e-12)
    assert BEST[0] in used
    # Of the first member nothing is known before its golden inputs and its first block.
    assert clock.now <= max(seconds, 2 + 2 * 2)
    ids = (tmp_path / "submission.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in ids] == list(found.ids)
    if found.left_out:
        assert list(used) == BEST[:1] and share * 3 * whole < one_view + 4
    if len(used) < 3:
        # Views were left out first: but for the first block of each, there was one.
        assert all(spent <= one_view + 2 + 2 for _, spent, _ in passes)
        assert share * 3 * whole < 3 * (one_view + 4)
    else:
        assert all(left == 0 for _, _, left in passes)
    if share >= 1.1:
        assert len(used) == 3 and all(spent == whole for _, spent, _ in passes)


def test_a_member_is_read_by_its_own_config_s_file(loaded, trained, tiny, tmp_path, monkeypatch):
    """Which has to have the functions that it was trained with."""
    other = replace(loaded[1], config=replace(loaded[1].config, name="other", code="0" * 64))
    lookups = []

    def named():
        lookups.append("other")
        return {"other": tmp_path / "other.py"}

    monkeypatch.setattr(inference.config_files, "named_files", named)
    monkeypatch.setattr(
        inference.config_files, "load", lambda name: replace(tiny, name=name, code="1" * 64)
    )

    with pytest.raises(ConfigError, match=r"config 'other' are not those .*0000.*expected|'other'"):
        inference.infer([loaded[0], other], trained[0], tmp_path, config=tiny, show=quiet)
    assert lookups


def test_the_mean_prediction_stays_where_a_member_cannot_be_checked(loaded, trained, tmp_path):
    """Golden outputs are those of each member."""
    wrong = replace(loaded[2], golden_outputs=loaded[2].golden_outputs[:, ::-1].copy())

    with pytest.raises(ArtifactError, match="other outputs here than where it was trained"):
        inference.infer([loaded[0], wrong], trained[0], tmp_path, show=quiet)

    assert len((tmp_path / "submission.csv").read_text().splitlines()) == 22
