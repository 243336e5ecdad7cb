"""The members of an ensemble on their way to Kaggle: each in a dataset of its own, by its bytes."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.bundle import bundle
from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import Unverified, UsageError
from deploy.kernel import artifact_manifest, ensemble_file
from deploy.kernel.ensemble_file import Member
from deploy.relay import published, relay
from deploy.relay.relay import Project
from deploy.trace import lineage
from localkaggle.server import LocalKaggle
from pipeline import ensemble as model_side
from tests.faults.world import competition

WEIGHTS = {"r1": 0.25, "r2": 0.75, "r3": 0.0}


@pytest.fixture
def ensemble(tmp_path: Path) -> Path:
    """Return an ensemble.json of three artifacts, of which one has no weight."""
    members = []
    for run, weight in WEIGHTS.items():
        folder = tmp_path / "members" / run
        folder.mkdir(parents=True)
        (folder / "weights.npz").write_bytes(run.encode())
        digest = hashlib.sha256(run.encode()).hexdigest()
        manifest = {
            "run_id": run,
            "weights_sha256": digest,
            "bundle_sha256": "",
            "files": {"weights.npz": {"sha256": digest, "size": 2}},
            "config": {"competition": "digits"},
        }
        (folder / "manifest.json").write_bytes(artifact_manifest.sealed(manifest))
        config = "other" if run == "r2" else "digits"
        one = {"run_id": run, "weights_sha256": digest, "config": config, "weight": weight}
        members.append({**one, "folder": str(folder)})
    path = tmp_path / "ensemble.json"
    path.write_bytes(artifact_manifest.sealed({"members": members, "seed": 1}))
    return path


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(root, "digits", "digits", "dataset", root / "runs", root / "build")


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kaggle]:
    """Return a client of a Kaggle that starts no session while a test lasts."""
    given = {"competitions": [competition()], "queue_seconds": 3600.0, "ready_seconds": 0.05}
    with LocalKaggle(tmp_path / "kaggle", **given) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield Kaggle.connect(pace=Pace(first=0.02, most=0.06, patience=5))


def handles(members: list[Member]) -> list[str]:
    return [
        bundle.member_handle("ann", "digits", member.weights_sha256).partition("/")[2]
        for member in members
    ]


def test_each_member_is_published_once_and_mounted_by_its_bytes(live, ours, ensemble, shown):
    """A push before is refused with what to type; the members' configs travel, and no others."""
    members = ensemble_file.read(ensemble, ours)
    with pytest.raises(UsageError, match=rf"invoke publish --ensemble {ensemble} --config"):
        relay.push(live, ours, relay.INFER, members=members, show=shown.append)

    for _ in range(2):
        made = published.members(live, ours, members, show=shown.append)
    run = relay.push(live, ours, relay.INFER, members=members, show=shown.append)

    assert [each.version for each in made] == [1, 1]
    assert sum("nothing was sent" in line for line in shown) == 2
    source = live.get_kernel(run.handle)
    assert source is not None
    names = {name.partition("/")[2] for name in source.asks["dataset_sources"]}
    assert names == set(handles(members)) and len(names) == 2
    assert "%%writefile pipeline/configs/other.py" in source.text
    (cell,) = (
        "".join(cell["source"])
        for cell in json.loads(source.text)["cells"]
        if "".join(cell["source"]).startswith("%%writefile bundle.json")
    )
    expect = json.loads(cell.partition("\n")[2])["expect"]
    assert [each["run_id"] for each in expect["members"]] == ["r2", "r1"]
    assert expect == ensemble_file.expected(members)
    assert [each["weight"] for each in expect["members"]] == [0.75, 0.25]


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (
            lambda path: path.write_text(path.read_text().replace("0.75", "0.8")),
            Unverified,
            "was c",
        ),
        (lambda path: path.write_text("{}"), Unverified, "cannot be read"),
        (lambda path: path.unlink(), UsageError, "is no file"),
    ],
)
def test_a_changed_file_is_refused(ensemble, ours, spoil, error, said):
    """It would weigh the members otherwise."""
    spoil(ensemble)

    with pytest.raises(error, match=f"(?s){said}.*python -m pipeline ensemble"):
        ensemble_file.read(ensemble, ours)


def test_a_member_that_changed_or_is_gone_is_refused(ensemble, ours):
    """One of no weight may be gone."""
    folder = ensemble.parent / "members"
    (folder / "r3" / "manifest.json").unlink()
    assert [member.run_id for member in ensemble_file.read(ensemble, ours)] == ["r2", "r1"]

    whole = (folder / "r1" / "weights.npz").read_bytes()
    (folder / "r1" / "weights.npz").write_bytes(b"r9")
    with pytest.raises(Unverified, match="another sha256"):
        ensemble_file.read(ensemble, ours)
    (folder / "r1" / "weights.npz").write_bytes(whole)
    for name in ("weights.npz", "manifest.json"):
        (folder / "r1" / name).write_bytes((folder / "r2" / name).read_bytes())
    with pytest.raises(Unverified, match=r"holds run r2, .* pins run r1"):
        ensemble_file.read(ensemble, ours)
    (folder / "r1" / "manifest.json").unlink()
    with pytest.raises(UsageError, match=r"it is not there\.\nExpected .* Move it back"):
        ensemble_file.read(ensemble, ours)


def test_an_ensemble_of_another_competition_is_refused(ensemble, ours):
    """Its members would be published under this one's name, and infer on its test set."""
    other = dataclasses.replace(ours, config="tumours", competition="breast-cancer")

    with pytest.raises(UsageError, match=r"'digits'; --config tumours is for 'breast-cancer'"):
        ensemble_file.read(ensemble, other)


def test_a_name_that_no_file_can_have_is_refused(ours):
    """In place of a traceback."""
    with pytest.raises(UsageError, match=r"is no file; expected an ensemble\.json"):
        ensemble_file.read(Path("x" * 300), ours)


def test_both_sides_read_the_same_of_a_file_and_of_a_bundle(ensemble, ours):
    """Each has a reader of its own, since the Kaggle side imports nothing of the model side."""
    members = ensemble_file.read(ensemble, ours)
    here = {field.name for field in dataclasses.fields(Member)} - {"folder", "file"}

    assert here == {field.name for field in dataclasses.fields(model_side.Member)}
    read = sorted(model_side.read(ensemble), key=lambda one: -one.weight)
    assert read == model_side.pinned(ensemble_file.expected(members))
    assert model_side.AGAIN == ensemble_file.AGAIN


def test_several_models_do_not_travel_through_a_kernel_s_output(root, ours, ensemble):
    """It holds that of the last run."""
    expect = ensemble_file.expected(ensemble_file.read(ensemble, ours))

    with pytest.raises(UsageError, match="handoff='kernel' cannot carry several models"):
        bundle.build(
            "infer-gpu",
            config="digits",
            competition="digits",
            owner="ann",
            out=root / "out",
            root=root,
            handoff="kernel",
            expect=expect,
        )


def test_the_lineage_names_each_member_and_what_it_counted(ours, ensemble):
    """Those that there was no time for, too."""
    members = ensemble_file.read(ensemble, ours)
    folder = ours.runs / "digits-infer-gpu-v1"
    folder.mkdir(parents=True)
    files = {
        "submission.csv": "id,label\n1,2\n",
        "members.json": json.dumps(
            [
                {"run_id": "r2", "weight": 0.75, "used": 1.0},
                {"run_id": "r1", "weight": 0.25, "used": 0.0},
            ]
        ),
        "bundle.json": json.dumps({"sealed": True, "expect": ensemble_file.expected(members)}),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    listed = {
        name: {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size": len(text)}
        for name, text in files.items()
    }
    (folder / "outputs.json").write_text(json.dumps({"files": listed}))

    links = lineage.trace(ours, folder / "submission.csv")

    told = [link.value for link in links if link.what == "member"]
    assert told == ["r2, weight 0.75, counted 1.00", "r1, weight 0.25, counted 0.00"]
    assert [link.what for link in links].count("dataset version") == 2
