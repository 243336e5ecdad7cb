"""A competition is started: its folder is inspected, its rules are accepted, the tasks know it."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipeline.configs
from deploy import init
from deploy.errors import UsageError
from localkaggle.competitions import Competition, accuracy
from pipeline.config import Config, config_files, load
from tests.shipped import DIGITS
from tests.small_competition import write_competition
from workbench.inspect import command, config_file
from workbench.options import INSPECT

SLUG = "leaf-diseases-2026"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a project whose pipeline/configs/ has one config, and gets those of a test."""
    root = tmp_path / "project"
    folder = root / "pipeline" / "configs"
    folder.mkdir(parents=True)
    shutil.copy(DIGITS, folder)
    monkeypatch.setattr(config_files, "CONFIGS", folder)
    monkeypatch.setattr(pipeline.configs, "__path__", [str(folder)])
    before = set(sys.modules)
    yield root
    for name in set(sys.modules) - before:
        if name.startswith("pipeline.configs."):
            del sys.modules[name]


@pytest.fixture
def site(host) -> None:
    """Start a Kaggle with that competition, whose credentials are in use."""
    sample = {"sample_submission.csv": b"id,label\na,x\n"}
    train = {"train.csv": b"id,label\nb,x\n"}
    answers = {"label": {"a": "x"}}
    host(competitions=[Competition(SLUG, "Leaves", train, sample, sample, answers, accuracy)])


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the text of the config that is proposed for a folder that somebody downloaded; nobody
    gave a slug.
    """
    folder = tmp_path_factory.mktemp("data") / "leaves"
    write_competition(folder)
    path = folder.with_name("leaves.py")
    asked = dict.fromkeys(INSPECT, "") | {"write": str(path)}
    command.run(folder, asked, lambda line: None)
    return path.read_text()


def write(root: Path, text: str, name: str = "leaves") -> Config:
    """Write a proposed config under a name."""
    text = text.replace('name="leaves"', f'name="{name}"')
    (root / "pipeline" / "configs" / f"{name}.py").write_text(text)
    return load(name)


def begin(root: Path, **more: Any) -> dict[str, Any]:
    """Begin the competition as `invoke init` does."""
    known = {name: init.Stated(*said) for name, said in config_file.stated().items()}
    return init.begin(root, SLUG, known, config_file.put, **more)


def test_a_competition_is_inspected_and_then_started(root, site, proposed, shown):
    """The slug and the hours go into the config that inspect wrote; the rest is kept."""
    before = write(root, proposed)
    assert before.competition == "leaves"

    made = begin(root, hours=2.0, show=shown.append)

    del sys.modules["pipeline.configs.leaves"]
    after = load("leaves")
    assert (after.competition, after.infer_hours) == (SLUG, 2.0)
    assert after.to_json() == before.to_json() | {"competition": SLUG, "infer_hours": 2.0}
    assert init.default_config(root) == made["config"] == "leaves"
    assert begin(root)["added"] == {}
    assert not made["unchecked"] and "exists, and its rules are accepted" in "\n".join(shown)
    assert made["handles"]["train-tpu"] == f"rehearsal/{SLUG}-train-tpu"
    assert shown[-1] == "Next: invoke doctor"
    text = Path(made["path"]).read_text()
    assert "Assumed" not in text and text.startswith(f'"""{SLUG}: images')


def test_a_competition_cannot_be_started_without_a_config(root, site, proposed, shown):
    """Kaggle is asked anyway. The command in the message downloads and describes the data."""

    with pytest.raises(UsageError) as caught:
        begin(root, show=shown.append)

    assert f"The competition {SLUG} exists, and its rules are accepted" in shown
    assert not (root / init.FILE).exists()
    assert str(caught.value).splitlines()[-1] == f"invoke start {SLUG}"
    write(root, proposed, "leaf_diseases_2026")
    assert begin(root)["config"] == init.default_config(root) == "leaf_diseases_2026"


def test_an_edited_config_is_not_changed(root, proposed):
    """Nothing in it is lost, and running it again changes nothing."""
    given = proposed.replace(f"    # {config_file.COMMENTS['competition']}\n", "")
    given = given.replace('competition="leaves"', f'competition="{SLUG}"')
    text = given.replace("CONFIG =", "# mine\nCONFIG =") + "\n# my notes\n"
    path = root / "pipeline/configs/leaves.py"
    path.write_text(text)

    begin(root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    made = begin(root)

    assert path.read_text() == text
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert (made["added"], made["remembered"]) == ({}, False)
