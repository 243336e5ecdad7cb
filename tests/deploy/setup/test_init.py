"""The default of the tasks, what is asked for, and what Kaggle says of a competition."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy import init
from deploy.errors import Denied, UsageError
from formats.errors import DiskError
from tests.deploy.between import Between

SLUG = "leaf-diseases-2026"
COMPETITION = {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True}
RULES = f"competitions/{SLUG}/rules"


@pytest.fixture
def ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project, and nobody signed in."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return root


def begin(
    root: Path,
    competition: str = SLUG,
    *,
    name: str = "other",
    held: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Begin a competition that the config of that name is for; `held`: the hours in it."""

    def put(name: str, fields: Mapping[str, Any]) -> Path:
        return root / "pipeline" / "configs" / f"{name}.py"

    configs = {name: init.Stated(competition, False, held)}
    return init.begin(root, competition, configs, put, **more)


@pytest.fixture
def signed_in(ours: Path, between: Between, monkeypatch: pytest.MonkeyPatch) -> Between:
    """The same, signed in as ann, who accepted the rules."""
    monkeypatch.setattr(init, "PACE", type(init.PACE)(first=0.05, most=0.1, patience=0.3))
    between.always("GetCompetition", COMPETITION)
    between.always("ListDataFiles", {"files": [{"name": "sample_submission.csv"}]})
    between.always("DownloadDataFile", {})
    return between


def written(root: Path) -> dict[str, str]:
    """Return every file of the project and its text."""
    return {str(path): path.read_text() for path in root.rglob("*") if path.is_file()}


def unchanged(ours: Path, error: type[Exception], said: str, *given: Any, **more: Any) -> str:
    """Begin what is refused with these words; return the message. Nothing is written."""
    before = written(ours)

    with pytest.raises(error, match=said) as caught:
        begin(ours, *given, **more)

    assert written(ours) == before
    return str(caught.value)


@pytest.mark.parametrize(
    ("slug", "config", "edit"),
    [
        ("Leaf Diseases", "", "capitals as there"),
        ("https://kaggle.example/competitions/Leaf-2026/", "", "init --competition Leaf-2026"),
        ("../../etc", "", "init --competition etc"),
        ("", "", "invoke init --competition SLUG"),
        ("leaf", "configs/leaf.py", "Move the file there"),
    ],
)
def test_a_name_that_cannot_work_is_refused_with_one_that_can(ours, slug, config, edit):
    """Before anything is written."""
    unchanged(ours, UsageError, edit, slug, config=config)


@pytest.mark.parametrize(
    "text",
    [
        *("config", "config = 3"),
        'config = "../x"',
        'config = "gone"',
        'config = "other"\nmore = 1',
    ],
)
def test_a_broken_relay_toml_is_named_with_its_edit(ours, text):
    """And `init` does not write over it, unless it only names what is gone."""
    (ours / init.FILE).write_text(text)

    with pytest.raises(UsageError, match=r"(?s)relay\.toml.*[Rr]emove"):
        init.default_config(ours)

    if text != 'config = "gone"':
        unchanged(ours, UsageError, "relay.toml")


def test_without_credentials_nobody_is_asked_and_that_is_said(between, ours, monkeypatch, shown):
    """The config is the default all the same."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name, raising=False)

    made = begin(ours, show=shown.append)

    assert between.seen == [] and made["remembered"] and made["unchecked"]
    assert f"https://www.kaggle.com/{RULES}" in "\n".join(shown)


REFUSED = {"code": 403, "message": "Permission denied"}
NOT_FOUND = (404, {"code": 404, "message": "No"})


@pytest.mark.parametrize(
    ("operation", "answer", "error", "said"),
    [
        ("ListDataFiles", NOT_FOUND, UsageError, "knows no competition"),
        ("ListDataFiles", (403, REFUSED), Denied, RULES),
        ("DownloadDataFile", (403, REFUSED), Denied, RULES),
        # Kaggle may list the files all the same.
        ("GetCompetition", COMPETITION | {"userHasEntered": False}, Denied, RULES),
    ],
)
def test_a_competition_that_is_not_there_or_not_entered_ends_it(
    signed_in, ours, operation, answer, error, said
):
    """With the edit, and nothing written."""
    signed_in.always(operation, answer)

    unchanged(ours, error, said)


@pytest.mark.parametrize("answer", [(401, {"code": 401, "message": "Unauthorized"}), (500, b"")])
def test_trouble_at_kaggle_s_end_is_reported_and_does_not_stop_it(signed_in, ours, answer):
    """A config needs no Kaggle."""
    signed_in.always("ListDataFiles", answer)

    made = begin(ours)

    assert made["remembered"] and made["unchecked"]
    assert made["handles"]["train-tpu"].startswith("ann/"), "the key names its user"


def test_a_disk_that_cannot_be_written_is_named(ours, monkeypatch):
    """Exit code 8, and no half of a file."""

    def full(*arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)

    unchanged(ours, DiskError, "No space")


# What no call tells


def test_the_hours_may_be_given_instead(ours):
    """For a script, or without credentials; nothing is asked then."""
    for held in (None, 4.0):
        made = begin(ours, held=held, hours=2.0, ask=pytest.fail)

        assert made["added"] == {"infer_hours": 2.0}


@pytest.mark.parametrize("answer", ["two", "0", "-1", "13", "nan"])
def test_an_answer_that_is_no_number_of_hours_ends_it(ours, answer):
    """And nothing is written. No answer is none: not every page says how long."""
    unchanged(ours, UsageError, "expected one up to 12", ask=lambda question: answer)
    assert begin(ours, ask=lambda question: "")["added"] == {}


def test_a_competition_that_takes_files_is_asked_no_hours(signed_in, ours, shown):
    """Its notebooks are not submitted. What Kaggle says of it is shown."""
    about = {"isKernelsSubmissionsOnly": False, "deadline": "2026-12-31T23:59:00Z"}
    signed_in.always("GetCompetition", COMPETITION | about)

    made = begin(ours, ask=lambda question: pytest.fail(question), show=shown.append)

    (line,) = (line for line in shown if "uploaded files" in line)
    assert "ends on 2026-12-31 23:59 UTC" in line and made["added"] == {}


DIGITS = "2026-leaves"


def test_the_notebooks_of_a_competition_that_begins_with_a_digit_get_a_letter(ours):
    """Kaggle finds no new notebook under a digit. The datasets keep the competition's name, and
    relay.toml may give the notebooks another.
    """
    assert begin(ours, DIGITS)["handles"] == {
        "train-tpu": "<you>/k-2026-leaves-train-tpu",
        "infer-gpu": "<you>/k-2026-leaves-infer-gpu",
        "artifact": "<you>/2026-leaves-artifact",
    }
    assert init.slug(ours, DIGITS) == "k-2026-leaves" and init.slug(ours, SLUG) == ""
    before = written(ours)
    assert not begin(ours, DIGITS)["remembered"] and written(ours) == before

    with (ours / init.FILE).open("a") as file:
        file.write(f'[slugs]\n{DIGITS} = "leaves"\n')
    assert begin(ours, DIGITS)["handles"]["train-tpu"] == "<you>/leaves-train-tpu"


def test_a_default_that_cannot_be_edited_is_left_with_the_line_to_write(ours):
    """Rather than a file that no command can read, or one without what the user wrote."""
    (ours / init.FILE).write_text('"config" = "digits"  # mine\n')

    unchanged(ours, UsageError, r'expected one line:\nconfig = "other"')


@pytest.mark.parametrize("slug", ["2026-leaves", "Leaves", "le", "a b c"])
def test_a_slug_that_cannot_work_is_named_with_its_edit(ours, slug):
    """Before anything is sent to it."""
    (ours / init.FILE).write_text(f'[slugs]\n{DIGITS} = "{slug}"\n')

    with pytest.raises(UsageError, match=r'a letter first(.|\n)*2026-leaves = "k-2026-'):
        init.slug(ours, DIGITS)
    assert init.default_config(ours) == "digits"
