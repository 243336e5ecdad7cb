"""The doctor finds what is wrong before anything is spent. Its rows do not hide each other and
contain no secrets.
"""

import importlib.metadata
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy import doctor
from deploy.connection import Pace
from deploy.doctor import FAIL, PASS, SKIP, WARN, Check, exit_code
from deploy.project import Project
from tests.deploy.between import Between
from tests.deploy.small import commit

QUICK = Pace(first=0.05, most=0.1, patience=0.3)
KEY = "the-key-of-ann"
TOKEN = "KGAT_0123456789abcdef"  # noqa: S105 - nobody's
NOT_FOUND = (404, {"code": 404, "message": "Not found"})
DENIED = (403, {"code": 403, "message": "Permission denied"})
UNAUTHORIZED = (401, {"code": 401, "message": "Unauthorized"})
BUSY = (503, b"")
QUOTA, FILES = "GetAcceleratorQuotaStatistics", "GetCompetition"
# Rows that ask Kaggle, and so are skipped where it cannot be asked.
ASKING = ("quota", "competition")
RULES = "https://www.kaggle.com/competitions/digits/rules"
Change = Callable[[Path, pytest.MonkeyPatch], None]


@pytest.fixture
def whole(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A project that lacks nothing, committed, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (root / "relay.toml").write_text('config = "digits"\n')
    commit(root)
    return root


@pytest.fixture
def server(whole: Path, between: Between, monkeypatch: pytest.MonkeyPatch) -> Between:
    """A Kaggle at which everything is well."""
    monkeypatch.setenv("KAGGLE_KEY", KEY)
    week = {"timeUsed": "3600s", "totalTimeAllowed": "72000s"}
    for operation, answer in {
        QUOTA: {"tpuQuota": week, "gpuQuota": week},
        "GetCompetition": {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True},
        "DownloadDataFile": {},
    }.items():
        between.always(operation, answer)
    return between


def examine(root: Path, given=None, **more) -> dict[str, Check]:
    ours = Project(root, "digits", "digits", "dataset", root / "runs", root / "build")
    rows = doctor.examine(root, given or (lambda: ours), pace=QUICK, **more)
    return {row.name: row for row in rows}


def code(rows: dict[str, Check]) -> int:
    return exit_code(list(rows.values()))


def verdicts(rows: dict[str, Check]) -> dict[str, str]:
    """Return the verdict of each row that did not pass."""
    return {name: row.verdict for name, row in rows.items() if row.verdict != PASS}


def skips(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, SKIP)


def test_a_healthy_project_passes_on_the_local_kaggle_and_is_left_as_it_was(whole, host, shown):
    """Every row, through the real client, against a server that really answers; nothing is made
    there or here.
    """
    local = host()
    before = sorted(whole.rglob("*"))

    rows = examine(whole, show=shown.append)

    assert verdicts(rows) == {} and code(rows) == 0
    assert shown == [str(row) for row in rows.values()]
    asked = {method for method, *_ in local.journal}
    assert {name for name in asked if not name.startswith(("Get", "List", "Download"))} == set()
    assert sorted(whole.rglob("*")) == before
    assert rows["login"].found == "rehearsal, with the key"


def test_no_competition_is_looked_up_before_one_is_started(server, whole):
    """As in the README: the default config is an example that Kaggle does not have."""
    server.always(FILES, NOT_FOUND)
    (whole / "relay.toml").unlink()

    rows = examine(whole)

    assert verdicts(rows) == skips("competition") and code(rows) == 0
    assert "invoke init --competition SLUG" in rows["competition"].found


def test_the_exit_code_is_that_of_what_must_be_fixed_first():
    """Credentials, then the network, then the rest; a warning is not a failure."""
    rows = [Check(WARN, ""), Check(SKIP, ""), *(Check(FAIL, "", "", each) for each in (8, 6, 3))]

    assert [exit_code(rows[:end]) for end in (2, 3, 4, 5)] == [0, 2, 6, 3]


def test_kaggle_is_not_asked_without_credentials(server, whole, monkeypatch):
    """The three ways are named, and the local rows are checked."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name)

    rows = examine(whole)

    assert server.seen == [] and code(rows) == 3
    assert verdicts(rows) == {"credentials": FAIL, **skips("login", *ASKING)}
    assert "kaggle auth login" in rows["credentials"].fix


SPENT = {"tpuQuota": {"timeUsed": "72000s", "totalTimeAllowed": "72000s"}}


@pytest.mark.parametrize(
    ("answers", "name", "ends", "said", "skipped"),
    [
        ({QUOTA: UNAUTHORIZED}, "login", 3, "", ASKING),
        ({QUOTA: BUSY}, "login", 6, "", ASKING),
        ({QUOTA: SPENT}, "quota", 0, "TPU 0.0 hours, GPU unknown left.*push to the TPU", ()),
        ({FILES: BUSY}, "competition", 6, "", ()),
        ({FILES: DENIED}, "competition", 3, RULES, ()),
        ({FILES: NOT_FOUND}, "competition", 2, "Correct the slug", ()),
    ],
)
def test_a_failed_row_does_not_hide_the_others(server, whole, answers, name, ends, said, skipped):
    """With its exit code, or as a warning."""
    for operation, answer in answers.items():
        server.always(operation, answer)

    rows = examine(whole)

    assert verdicts(rows) == {name: FAIL if ends else WARN, **skips(*skipped)}
    assert code(rows) == rows[name].exit_code == ends
    assert re.search(said, rows[name].found + rows[name].fix)


def test_a_token_tells_whose_it_is_and_an_expired_one_before_a_good_key_is_a_warning(
    server, whole, monkeypatch
):
    """The relay then uses the key; `kaggle` would use the token, and be refused."""
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    server.always("IntrospectToken", {"active": True, "username": "tess"})
    rows = examine(whole)
    assert rows["login"].found == "tess, with a token"
    assert "tess/digits-train-tpu" in rows["notebooks"].found

    server.always("IntrospectToken", NOT_FOUND)
    rows = examine(whole)
    assert verdicts(rows) == {"login": WARN} and code(rows) == 0
    assert rows["login"].fix == "unset KAGGLE_API_TOKEN"
    assert "also found: KAGGLE_USERNAME and KAGGLE_KEY" in rows["credentials"].found


def test_no_secret_is_shown_where_kaggle_repeats_it(server, whole, monkeypatch, tmp_path, shown):
    """Neither in a row nor in its JSON, wherever it is kept."""
    held = [f"secret-0123456789abcdef{number}" for number in range(6)]
    token, sent, proxy, key, file, refresh = held
    folder = tmp_path / ".kaggle"
    folder.mkdir()
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(folder))
    monkeypatch.setenv("KAGGLE_API_TOKEN", token)
    monkeypatch.setenv("KAGGLE_TOKEN", sent)
    monkeypatch.setenv("https_proxy", f"http://ann:{proxy}@127.0.0.1:9")
    (folder / "kaggle.json").write_text(f'{{"username": "ann", "key": "{key}"}}')
    (folder / "access_token").write_text(file)
    (folder / "credentials.json").write_text(json.dumps({"refresh_token": refresh}))

    def fail() -> Project:
        raise RuntimeError(f"in the environment there are {held}")

    for code in (401, 403):
        for operation in ("IntrospectToken", QUOTA, FILES):
            server.always(operation, (code, {"code": code, "message": f"Bad: {held}"}))
        for given in (None, fail):
            rows = examine(whole, given, show=shown.append)
            shown += [json.dumps(asdict(row)) for row in rows.values()]

    told = "\n".join(shown)
    assert "in the environment there are " in told and "Bad: " in told
    assert not [secret for secret in (*held, KEY) if secret in told]


def test_a_config_that_cannot_be_loaded_hides_no_other_row(server, whole):
    def fail() -> Project:
        raise RuntimeError("it is broken")

    rows = examine(whole, fail)

    assert code(rows) == 2 and "it is broken" in rows["config"].found
    needs = skips("competition", "notebooks")
    assert verdicts(rows) == {"config": FAIL, **needs}


# What is wrong on this machine, as a change of the project's folder or of the environment


def edited(file: str, old: str, new: str) -> Change:
    def change(whole: Path, _: pytest.MonkeyPatch) -> None:
        text = (whole / file).read_text()
        assert old in text
        (whole / file).write_text(text.replace(old, new, 1))

    return change


def installed(package: str, version: str) -> Change:
    real = importlib.metadata.version

    def there(name: str) -> str:
        return version if name == package else real(name)

    return lambda _, patch: patch.setattr(importlib.metadata, "version", there)


ONLINE = ("kernels/infer-gpu/kernel-metadata.json", '_internet": false', '_internet": true')


@pytest.mark.parametrize(
    ("change", "name", "verdict", "ends", "said"),
    [
        (edited(*ONLINE), "notebooks", FAIL, 2, "internet"),
        (lambda _, patch: patch.setattr(doctor, "FREE_BYTES", 10**18), "disk", FAIL, 2, "Free"),
        (installed("kaggle", "2.3.0"), "client", FAIL, 2, "pip install"),
    ],
)
def test_what_is_wrong_on_this_machine_is_found_before_the_push(
    server, whole, monkeypatch, change, name, verdict, ends, said
):
    """The notebook passes the gate of a push."""
    change(whole, monkeypatch)

    rows = examine(whole)

    assert (rows[name].verdict, code(rows)) == (verdict, ends)
    assert said in rows[name].found + rows[name].fix
