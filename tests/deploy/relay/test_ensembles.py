"""The members of an ensemble on Kaggle: each in its own dataset, by its bytes."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from deploy import bundle, datasets, lineage, output
from deploy.connection import Pace
from deploy.errors import Unverified, UsageError
from deploy.project import INFER
from deploy.records import Records
from formats import checksums, sealed_folder
from pipeline.infer import ensemble as model_side
from tests.deploy import steps
from tests.deploy.small import connect
from tests.faults.recorded_session import seal, write_artifact
from tests.faults.world import competition

WEIGHTS = {"r1": 0.25, "r2": 0.75, "r3": 0.0}


@pytest.fixture
def ensemble(tmp_path):
    """Return an ensemble.json of three artifacts, of which one has no weight."""
    members = []
    for run, weight in WEIGHTS.items():
        folder = tmp_path / run
        write_artifact(folder, "", {"weights.npz": run.encode()}, run)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest |= {"config": {"competition": "digits"}}
        del manifest["manifest_sha256"]
        (folder / "manifest.json").write_bytes(checksums.sealed(manifest))
        config = "other" if run == "r2" else "digits"
        pinned = {name: manifest[name] for name in ("run_id", "weights_sha256")}
        members.append({**pinned, "config": config, "weight": weight, "folder": str(folder)})
    path = tmp_path / "ensemble.json"
    path.write_bytes(checksums.sealed({"members": members, "seed": 1}))
    return path


def test_each_member_is_published_once_and_mounted_by_its_bytes(live, ours, ensemble, shown):
    """A push before that is refused with the command. Only the members' configs travel."""
    members = output.ensemble(ensemble, ours)
    with pytest.raises(UsageError, match=rf"invoke publish --ensemble {ensemble} --config"):
        steps.pushed(live, ours, INFER, members=members, show=shown.append)

    for _ in range(2):
        made = steps.done(datasets.members(live, Records(ours), members), shown.append)
    run = steps.pushed(live, ours, INFER, members=members, show=shown.append)

    assert [each.version for each in made] == [1, 1]
    assert sum("Nothing was sent" in line for line in shown) == 2
    source = live.get_kernel(run.handle)
    named = [bundle.member(member.weights_sha256) for member in members]
    handles = [bundle.address("rehearsal", "digits", name) for name in named]
    assert sorted(source.asks["dataset_sources"]) == sorted(handles)
    assert "%%writefile pipeline/configs/other.py" in source.text
    expected = output.expected(members)["members"]
    assert [(each["run_id"], each["weight"]) for each in expected] == [("r2", 0.75), ("r1", 0.25)]
    assert all(f'\\"{each["weights_sha256"]}\\"' in source.text for each in expected)


@pytest.mark.parametrize("takes_files", [False, True])
def test_predictions_in_a_csv_are_refused_only_where_kaggle_has_another_test_set(
    takes_files, host, ours, ensemble
):
    """The folder is published and mounted like an artifact. Refused before it is published."""
    host(competitions=[competition(takes_files=takes_files)], queue_seconds=3600.0)
    kaggle, content = connect(pace=Pace(first=0.02, most=0.06, patience=0.4)), b"id,label\na,0\n"
    pinned = {"run_id": "lgbm-0123", "weights_sha256": hashlib.sha256(content).hexdigest()}
    folder = ensemble.parent / "csv-lgbm"
    manifest = {**pinned, "bundle_sha256": "", "config": {"name": "digits"}, "custom_code": ""}
    sealed_folder.write(folder, {"test.csv": content}, manifest)
    listed = checksums.opened(ensemble.read_bytes())["members"]
    listed.append({**pinned, "config": "digits", "weight": 0.5, "folder": str(folder)})
    ensemble.write_bytes(checksums.sealed({"members": listed}))
    members = output.ensemble(ensemble, ours)

    if not takes_files:
        with pytest.raises(
            UsageError, match=r"of lgbm-0123 come from CSV .* of digits on a hidden"
        ):
            steps.pushed(kaggle, ours, INFER, members=members)
        return
    steps.done(datasets.members(kaggle, Records(ours), members))
    run = steps.pushed(kaggle, ours, INFER, members=members)

    handle = bundle.address("rehearsal", "digits", bundle.member(pinned["weights_sha256"]))
    assert handle in kaggle.get_kernel(run.handle).asks["dataset_sources"]
    assert set(kaggle.dataset_files(handle, 1)) == {"manifest.json", "test.csv"}


AGAIN = "(.|\n)*python -m pipeline ensemble"


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (
            lambda path: path.write_text(path.read_text().replace("0.75", "0.8")),
            Unverified,
            f"was c{AGAIN}",
        ),
        (lambda path: path.unlink(), UsageError, f"is not a file{AGAIN}"),
        (lambda path: (path.parent / "r1/weights.npz").write_bytes(b"r9"), Unverified, "changed"),
        (
            lambda path: shutil.copytree(
                path.parent / "r2", path.parent / "r1", dirs_exist_ok=True
            ),
            Unverified,
            "contains run r2 .* expects run r1",
        ),
        (lambda path: shutil.rmtree(path.parent / "r1"), UsageError, "Move it back"),
    ],
)
def test_changed_or_missing_members_are_refused(ensemble, ours, spoil, error, said):
    """Otherwise other weights or members would be used."""
    spoil(ensemble)

    with pytest.raises(error, match=said):
        output.ensemble(ensemble, ours)


def test_an_ensemble_of_another_competition_is_refused(ensemble, ours):
    """Its members would be published under this competition's name, and infer on its test set."""
    other = dataclasses.replace(ours, config="tumours", competition="breast-cancer")

    with pytest.raises(UsageError, match="competition digits, but the config tumours is for"):
        output.ensemble(ensemble, other)


def test_both_sides_read_the_same_of_a_file_and_of_a_bundle(ensemble, ours):
    """Each has its own reader, since the Kaggle side imports nothing from the model side. A member
    without weight may be gone.
    """
    shutil.rmtree(ensemble.parent / "r3")
    members = output.ensemble(ensemble, ours)
    read = sorted(model_side.read(ensemble)["members"], key=lambda one: -one["weight"])

    assert [Path(each["folder"]) for each in read] == [each.folder for each in members]
    for there, bundled in zip(read, output.expected(members)["members"], strict=True):
        assert {name: there[name] for name in (*model_side.PINS, "config", "weight")} == bundled
    assert model_side.AGAIN == output.AVERAGE_AGAIN


def test_thresholds_travel_with_the_members(ensemble, ours):
    value = checksums.opened(ensemble.read_bytes())
    found = {"kind": "classes", "values": [1.0, 3.5], "used": True}
    assert "thresholds" not in output.expected(output.ensemble(ensemble, ours))
    ensemble.write_bytes(checksums.sealed({"members": value["members"], "thresholds": found}))

    assert output.expected(output.ensemble(ensemble, ours))["thresholds"] == found
    assert model_side.read(ensemble)["thresholds"] == found


def test_several_models_do_not_travel_through_a_kernel_s_output(ours, ensemble):
    """It has only that of the last run."""
    expect = output.expected(output.ensemble(ensemble, ours))
    ours = dataclasses.replace(ours, handoff="kernel")
    code = bundle.read(ours, "infer-gpu")

    with pytest.raises(UsageError, match="handoff='kernel' only supports a single model"):
        bundle.build(ours, code, bundle.Inputs(expect), "ann")


def test_the_lineage_names_each_member(ours, ensemble):
    expect = output.expected(output.ensemble(ensemble, ours))
    folder = ours.runs / "digits-infer-gpu-v1"
    folder.mkdir(parents=True)
    (folder / "submission.csv").write_text("id,label\n1,2\n")
    (folder / "bundle.json").write_text(json.dumps({"sealed": True, "expect": expect}))
    seal(folder)

    links = lineage.trace(Records(ours), folder / "submission.csv")

    assert [link.value for link in links if link.what == "artifact"] == ["r2", "r1"]
    assert [link.what for link in links].count("dataset version") == 2
