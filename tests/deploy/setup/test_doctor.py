"""The doctor finds what is wrong before anything is spent, in rows that do not hide each other and
hold no secret.
"""

import importlib.metadata
import itertools
import json
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import CredentialError
from deploy.journal import Journal
from deploy.relay.relay import Project
from deploy.setup import doctor
from deploy.setup.check import FAIL, PASS, SKIP, WARN, Check, exit_code
from tests.deploy.between import HANG, RESET, Between

ROOT = Path(__file__).resolve().parents[3]
QUICK = Pace(first=0.05, most=0.1, patience=0.3)
TODAY = date(2026, 11, 21)
KEY = "the-key-of-ann"
TOKEN = "KGAT_0123456789abcdef"  # noqa: S105 - nobody's
NOT_FOUND = (404, {"code": 404, "message": "Not found"})
DENIED = (403, {"code": 403, "message": "Permission denied"})
UNAUTHORIZED = (401, {"code": 401, "message": "Unauthorized"})
# Rows that ask Kaggle, and so are skipped where it cannot be asked.
ASKING = ("clock", "quota", "competition", "rules", "submissions", "kaggle")
LOCAL = ("python", "client", "config", "notebooks", "commit", "images", "disk")


@pytest.fixture
def whole(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A project that lacks nothing, committed, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (root / "constraints").mkdir()
    (root / "relay.toml").write_text('config = "digits"\n')
    (root / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.11,<3.14"\n')
    (root / "constraints" / "gpu-image.txt").write_text(
        "# GPU image as of 2026-10, Python 3.12\n"
        "keras==3.13.2\nnumpy==2.0.2; python_version > '3'\n"
    )
    for command in (
        ["init", "-q"],
        ["add", "pipeline", "kernels"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"],
    ):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return root


@pytest.fixture
def server(whole: Path, between: Between, monkeypatch: pytest.MonkeyPatch) -> Between:
    """A Kaggle at which everything is well."""
    monkeypatch.setenv("KAGGLE_KEY", KEY)
    week = {"timeUsed": "3600s", "totalTimeAllowed": "72000s"}
    for operation, answer in {
        "GetAcceleratorQuotaStatistics": {"tpuQuota": week, "gpuQuota": week},
        "GetCompetition": {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True},
        "ListDataFiles": {"files": [{"name": "train.csv"}, {"name": "sample_submission.csv"}]},
        "DownloadDataFile": {},
        "GetSubmissionLimits": {"numToday": 1, "numTotal": 7, "numAllowedNow": 4},
        "GetKernel": NOT_FOUND,
        "GetDataset": {"currentVersionNumber": 2},
    }.items():
        between.say(operation, itertools.repeat(answer))
    return between


def project(root: Path, competition: str = "digits") -> Project:
    return Project(root, "digits", competition, "dataset", root / "runs", root / "build")


def examine(root: Path, given=None, **more) -> dict[str, Check]:
    rows = doctor.examine(
        root,
        given or (lambda: project(root)),
        pace=QUICK,
        **{"today": TODAY, **more},
    )
    return {row.name: row for row in rows}


def verdicts(rows: dict[str, Check], *names: str) -> set[str]:
    return {rows[name].verdict for name in names}


def code(rows: dict[str, Check]) -> int:
    return exit_code(list(rows.values()))


def test_a_healthy_project_passes_on_the_local_kaggle_and_is_left_as_it_was(
    whole, tmp_path, monkeypatch, shown
):
    """Every row, through the real client, against a server that really answers; nothing is made
    there or here.
    """
    from localkaggle.server import LocalKaggle
    from tests.faults.world import competition

    with LocalKaggle(tmp_path / "kaggle", competitions=[competition()]) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        before = sorted(whole.rglob("*"))

        rows = examine(whole, show=shown.append)

        asked = {method for method, *_ in local.journal}
    assert [row for row in rows.values() if row.verdict not in (PASS, SKIP)] == []
    assert [name for name, row in rows.items() if row.verdict == SKIP] == ["permissions"], (
        "no file holds credentials"
    )
    assert code(rows) == 0 and shown == [str(row) for row in rows.values()]
    assert {name for name in asked if not name.startswith(("Get", "List", "Download"))} == set()
    assert sorted(whole.rglob("*")) == before
    assert rows["login"].found == "rehearsal, by the key"


def test_before_a_competition_is_begun_none_is_looked_for(server, whole):
    """As the README has it: the default config is of an example that Kaggle does not know."""
    server.say("ListDataFiles", itertools.repeat(NOT_FOUND))
    (whole / "relay.toml").unlink()

    rows = examine(whole)

    assert verdicts(rows, "competition", "rules", "submissions") == {SKIP} and code(rows) == 0
    assert "invoke init --competition SLUG" in rows["competition"].found


def test_every_row_goes_to_json(server, whole):
    """A program reads them too."""
    rows = examine(whole)

    assert json.loads(json.dumps(rows["rules"].to_json())) == {
        "name": "rules",
        "verdict": PASS,
        "found": "accepted: Kaggle gives sample_submission.csv; the competition takes notebooks",
        "fix": "",
        "exit_code": 0,
    }


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([2], 2), ([8], 2), ([4, 8], 2), ([6, 2], 6), ([2, 6, 3], 3), ([7], 2)],
)
def test_the_exit_code_is_that_of_what_must_be_fixed_first(codes, expected):
    """Credentials, then the network, then the rest; a warning is no failure."""
    rows = [Check("row", FAIL, "", "", each) for each in codes]

    assert exit_code([Check("row", WARN, ""), Check("row", SKIP, ""), *rows]) == expected


def test_without_credentials_nobody_is_asked(server, whole, monkeypatch):
    """The three ways are named, and what can be looked at here is."""
    monkeypatch.delenv("KAGGLE_USERNAME")
    monkeypatch.delenv("KAGGLE_KEY")

    rows = examine(whole)

    assert server.seen == []
    assert (rows["credentials"].verdict, code(rows)) == (FAIL, 3)
    assert (
        "KAGGLE_API_TOKEN" in rows["credentials"].fix
        and "kaggle auth login" in rows["credentials"].fix
    )
    assert verdicts(rows, "login", *ASKING) == {SKIP}
    assert verdicts(rows, *LOCAL) == {PASS}


@pytest.mark.parametrize("where", ["KAGGLE_KEY", "kaggle.json"])
def test_a_token_that_was_saved_as_a_key_is_told_with_its_place(
    server, whole, monkeypatch, tmp_path, where
):
    """The site hands out tokens now, and people put them where the key was."""
    if where == "KAGGLE_KEY":
        monkeypatch.setenv("KAGGLE_KEY", TOKEN)
    else:
        monkeypatch.delenv("KAGGLE_USERNAME")
        monkeypatch.delenv("KAGGLE_KEY")
        file = tmp_path / "kaggle.json"
        file.write_text(json.dumps({"username": "ann", "key": TOKEN}))
        monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path))

    rows = examine(whole)
    with pytest.raises(CredentialError) as caught:
        Kaggle.connect()

    assert server.seen == [] and code(rows) == caught.value.exit_code == 3
    assert verdicts(rows, "login", *ASKING) == {SKIP}
    for told in (rows["credentials"].found + rows["credentials"].fix, str(caught.value)):
        assert f"{where}: the key in it is a token" in told and TOKEN not in told
        assert "Put it into ~/.kaggle/access_token" in told


def test_a_key_that_kaggle_does_not_know_is_found_at_once(server, whole):
    """A key is believed until somebody is asked."""
    server.say("GetAcceleratorQuotaStatistics", itertools.repeat(UNAUTHORIZED))

    rows = examine(whole)

    assert (rows["login"].verdict, rows["login"].exit_code, code(rows)) == (FAIL, 3, 3)
    assert verdicts(rows, *ASKING) == {SKIP} and verdicts(rows, *LOCAL) == {PASS}
    assert server.count("GetAcceleratorQuotaStatistics") == len(server.seen) == 1


@pytest.mark.parametrize("silence", [HANG, RESET, (503, b"")])
def test_silence_ends_in_time_and_hides_no_other_row(server, whole, silence):
    """Exit code 6."""
    server.say("GetAcceleratorQuotaStatistics", itertools.repeat(silence))

    rows = examine(whole, timeouts=(1, 0.5) if silence == HANG else doctor.TIMEOUTS)

    assert code(rows) == 6
    assert verdicts(rows, *ASKING) == {SKIP} and verdicts(rows, *LOCAL) == {PASS}


def test_silence_in_the_middle_is_waited_for_once(server, whole):
    """What was answered before stays known."""
    server.say("ListDataFiles", itertools.repeat((503, b"")))

    rows = examine(whole)

    assert (rows["competition"].exit_code, code(rows)) == (6, 6)
    assert verdicts(rows, "rules", "submissions", "kaggle") == {SKIP}
    assert verdicts(rows, "login", "clock", "quota") == {PASS}


@pytest.mark.parametrize("operation", ["ListDataFiles", "DownloadDataFile"])
def test_rules_that_are_not_accepted_come_with_their_address(server, whole, operation):
    """Kaggle itself says only 403."""
    server.say(operation, itertools.repeat(DENIED))

    rows = examine(whole)

    row = rows["competition" if operation == "ListDataFiles" else "rules"]
    assert (row.verdict, code(rows)) == (FAIL, 3)
    assert "https://www.kaggle.com/competitions/digits/rules" in row.fix
    assert rows["submissions"].verdict == SKIP and rows["kaggle"].verdict == PASS


def test_a_competition_that_is_not_there_is_a_fault_of_the_config(server, whole):
    """Exit code 2."""
    server.say("ListDataFiles", itertools.repeat(NOT_FOUND))

    rows = examine(whole)

    assert (rows["competition"].verdict, code(rows)) == (FAIL, 2)
    assert "Correct the slug" in rows["competition"].fix


@pytest.mark.parametrize("files", [[], [{"name": "train/a.png"}]])
def test_rules_that_cannot_be_tried_are_not_called_accepted(server, whole, files):
    """No file is listed, or one that cannot be asked for."""
    server.say("ListDataFiles", itertools.repeat({"files": files}))
    server.say("DownloadDataFile", itertools.repeat(NOT_FOUND))

    assert examine(whole)["rules"].verdict == WARN


def test_an_expired_token_before_a_good_key_is_a_warning(server, whole, monkeypatch):
    """The relay signs with the key; `kaggle` would send the token, and be refused."""
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    server.say("IntrospectToken", itertools.repeat(NOT_FOUND))

    rows = examine(whole)

    assert (rows["login"].verdict, code(rows)) == (WARN, 0)
    assert (
        "KAGGLE_API_TOKEN" in rows["login"].found and rows["login"].fix == "unset KAGGLE_API_TOKEN."
    )
    assert "also there, and not used: KAGGLE_USERNAME and KAGGLE_KEY" in rows["credentials"].found
    assert verdicts(rows, *ASKING) == {PASS}


def test_an_expired_token_alone_is_named_as_one(server, whole, monkeypatch, tmp_path):
    """The client says that there are no credentials."""
    monkeypatch.delenv("KAGGLE_USERNAME")
    monkeypatch.delenv("KAGGLE_KEY")
    (tmp_path / ".kaggle").mkdir()
    (tmp_path / ".kaggle" / "access_token").write_text(TOKEN)
    server.say("IntrospectToken", itertools.repeat(NOT_FOUND))

    rows = examine(whole)

    assert (rows["login"].verdict, code(rows)) == (FAIL, 3)
    assert "~/.kaggle/access_token: it has expired" in rows["login"].found
    assert str(tmp_path / ".kaggle" / "access_token") in rows["login"].fix


def test_a_token_tells_whose_it_is(server, whole, monkeypatch):
    """Kaggle is asked for that."""
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    server.say("IntrospectToken", itertools.repeat({"active": True, "username": "tess"}))

    rows = examine(whole)

    assert rows["login"].found == "tess, by a token"
    assert "tess/digits-train-tpu" in rows["notebooks"].found


def test_no_quota_is_a_warning(server, whole):
    """The other accelerator may have some, and next week has."""
    gone = {"timeUsed": "72000s", "totalTimeAllowed": "72000s"}
    server.say("GetAcceleratorQuotaStatistics", itertools.repeat({"tpuQuota": gone}))

    rows = examine(whole)

    assert (rows["quota"].verdict, code(rows)) == (WARN, 0)
    assert (
        rows["quota"].found == "TPU 0.0 hours, GPU unknown left this week"
        and "TPU" in rows["quota"].fix
    )


def test_an_account_that_may_not_ask_for_the_quota_is_signed_in(server, whole):
    """One refused question is not all of them."""
    server.say("GetAcceleratorQuotaStatistics", itertools.repeat(DENIED))

    rows = examine(whole)

    assert (rows["login"].verdict, rows["quota"].verdict, code(rows)) == (PASS, WARN, 0)


@pytest.mark.parametrize(
    ("limits", "said", "fix"),
    [
        ({}, "no team", "Accept the rules"),
        ({"numToday": 5, "numTotal": 9}, "0 left now", "after midnight UTC"),
        ({"numTotal": 9, "limitedByTotal": True}, "0 left now", "no later day brings another"),
    ],
)
def test_no_submission_left_is_a_warning(server, whole, limits, said, fix):
    """Training needs none."""
    server.say("GetSubmissionLimits", itertools.repeat(limits))

    rows = examine(whole)

    assert rows["submissions"].verdict == WARN and said in rows["submissions"].found
    assert fix in rows["submissions"].fix


@pytest.mark.parametrize(("minutes", "verdict"), [(0, PASS), (7, WARN), (-7, WARN)])
def test_a_clock_that_is_off_is_found_by_kaggle_s_own(server, whole, monkeypatch, minutes, verdict):
    """Every answer has a date; nobody else is asked for the time."""
    there = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    monkeypatch.setattr(server._server.RequestHandlerClass, "date_time_string", lambda *_: there)

    row = examine(whole)["clock"]

    assert (row.verdict, ("behind" if minutes > 0 else "ahead") in row.found) == (verdict, True)


@pytest.mark.parametrize("nonsense", ["", "yesterday", "Sat, 99 Nov 2026 00:00:00 GMT"])
def test_a_date_that_cannot_be_read_tells_nothing(server, whole, monkeypatch, nonsense):
    """And fails nothing."""
    monkeypatch.setattr(server._server.RequestHandlerClass, "date_time_string", lambda *_: nonsense)

    rows = examine(whole)

    assert (rows["clock"].verdict, rows["quota"].verdict) == (SKIP, PASS)


def test_what_is_on_kaggle_already_is_named_with_its_version(server, whole):
    """Owner, slug, version; what is not there yet is no fault."""
    row = examine(whole)["kaggle"]

    assert row.verdict == PASS
    kernels = "ann/digits-train-tpu not yet, ann/digits-infer-gpu not yet"
    assert row.found == f"{kernels}, ann/digits-artifact version 2"


def test_a_notebook_that_kaggle_put_elsewhere_is_looked_for_there(server, whole):
    """It pushes to that address from then on."""
    asked = "ann/digits-train-tpu"
    with Journal(whole / "runs" / "journal.sqlite").recording(
        "pushes", config="digits", asked=asked, handle=f"{asked}-9"
    ):
        pass

    rows = examine(whole)

    assert f"{asked}-9 not yet" in rows["kaggle"].found
    assert f"{asked}-9 (" in rows["notebooks"].found


def test_runs_of_another_owner_are_a_warning(server, whole):
    """`watch` and `pull` would ask for what this account may not see."""
    with Journal(whole / "runs" / "journal.sqlite").recording(
        "pushes", config="digits", handle="bob/digits-train-tpu"
    ):
        pass

    row = examine(whole)["kaggle"]

    assert row.verdict == WARN and "the last push was bob's, and you are ann" in row.found


@pytest.mark.parametrize(
    ("place", "answer"),
    [
        ("KAGGLE_API_TOKEN", 401),
        ("KAGGLE_API_TOKEN", 500),
        ("KAGGLE_KEY", 401),
        ("KAGGLE_TOKEN", 403),
        ("https_proxy", 403),
        ("kaggle.json", 403),
        ("access_token", 401),
    ],
)
def test_no_secret_is_shown_even_where_kaggle_repeats_it(
    server, whole, monkeypatch, tmp_path, place, answer, shown
):
    """Neither in a row, nor in its JSON, nor while it runs."""
    secret = "secret-0123456789abcdef"  # noqa: S105 - nobody's
    folder = tmp_path / ".kaggle"
    folder.mkdir()
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(folder))
    if place.startswith("KAGGLE_"):
        monkeypatch.setenv(place, secret)
    elif place == "https_proxy":
        monkeypatch.setenv(place, f"http://ann:{secret}@127.0.0.1:9")
    else:
        (folder / place).write_text(
            secret if place == "access_token" else f'{{"username": "ann", "key": "{secret}"}}'
        )
    said = {"code": answer, "message": f"Bad: {secret}"}
    for operation in ("IntrospectToken", "GetAcceleratorQuotaStatistics", "ListDataFiles"):
        server.say(operation, itertools.repeat((answer, said)))

    def fail() -> Project:
        raise RuntimeError(f"in the environment there is {secret}")

    rows = {**examine(whole, show=shown.append), **examine(whole, fail, show=shown.append)}

    told = "\n".join([*shown, *(json.dumps(row.to_json()) for row in rows.values())])
    assert "in the environment there is " in told
    assert secret not in told and KEY not in told


def test_an_environment_that_the_client_would_ignore_ends_all_asking(server, whole, monkeypatch):
    """It takes TEST for the real site in silence."""
    monkeypatch.setenv("KAGGLE_API_ENVIRONMENT", "TEST")

    rows = examine(whole)

    assert server.seen == [] and code(rows) == 2
    assert (rows["environment"].verdict, rows["environment"].fix) == (FAIL, "Unset it.")
    assert (
        verdicts(rows, "client", "login", *ASKING) == {SKIP} and rows["notebooks"].verdict == PASS
    )


@pytest.mark.parametrize("name", ["VERBOSE", "KAGGLE_PATH", "KAGGLE_ANYTHING"])
def test_a_variable_that_changes_the_client_is_a_warning(server, whole, monkeypatch, name):
    """With the edit that takes it away."""
    monkeypatch.setenv(name, "1")

    rows = examine(whole)

    assert (rows["environment"].verdict, rows["environment"].fix, code(rows)) == (
        WARN,
        f"unset {name}",
        0,
    )


@pytest.mark.parametrize(
    ("mode", "verdict"), [(0o600, PASS), (0o400, PASS), (0o640, WARN), (0o604, WARN)]
)
def test_a_key_that_others_may_read_is_a_warning(
    server, whole, monkeypatch, tmp_path, mode, verdict
):
    """Also of a file that is not used."""
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path))
    path = tmp_path / "kaggle.json"
    path.write_text('{"username": "ann", "key": "another-key"}')
    path.chmod(mode)

    row = examine(whole)["permissions"]

    assert (row.verdict, row.fix) == (verdict, f"chmod 600 {path}" if verdict == WARN else "")


class Broken(Exception):
    """What the model side raises for a config: it carries an exit code, and this side knows nothing
    else of it.
    """

    exit_code = 2


@pytest.mark.parametrize(
    "error",
    [Broken("it is broken\nMend it."), RuntimeError("it is broken"), OSError("it is broken")],
)
def test_a_config_that_cannot_be_loaded_hides_no_other_row(server, whole, error):
    """One learns of the credentials in the same run."""

    def fail() -> Project:
        raise error

    rows = examine(whole, fail)

    assert (rows["config"].verdict, code(rows)) == (FAIL, 2) and "it is broken" in rows[
        "config"
    ].found
    assert verdicts(
        rows, "competition", "rules", "submissions", "notebooks", "commit", "kaggle"
    ) == {SKIP}
    assert verdicts(rows, "login", "quota", "images", "disk") == {PASS}


def test_a_notebook_that_may_not_be_pushed_is_found_before_the_push(server, whole):
    """By the very gate of the push."""
    path = whole / "kernels" / "infer-gpu" / "kernel-metadata.json"
    path.write_text(path.read_text().replace('"enable_internet": false', '"enable_internet": true'))

    rows = examine(whole)

    assert (rows["notebooks"].verdict, rows["commit"].verdict, code(rows)) == (FAIL, SKIP, 2)
    assert "enable_internet" in rows["notebooks"].fix


def test_the_slug_of_a_long_competition_fits_its_title(server, whole):
    """Kaggle makes the address from the title."""
    row = examine(whole, lambda: project(whole, "x" * 50))["notebooks"]

    assert row.verdict == PASS


def test_local_changes_are_a_warning(server, whole):
    """What runs can then not be made again."""
    (whole / "pipeline" / "model.py").write_text("changed = True\n")

    rows = examine(whole)

    assert (rows["commit"].verdict, code(rows)) == (WARN, 0)


def test_a_project_without_git_is_a_warning(server, whole):
    """A run then names no commit."""
    shutil.rmtree(whole / ".git")

    assert examine(whole)["commit"].verdict == WARN


@pytest.mark.parametrize(
    ("today", "verdict"),
    [(date(2026, 11, 1), PASS), (date(2027, 1, 29), PASS), (date(2027, 1, 30), WARN)],
)
def test_versions_that_were_seen_long_ago_are_a_warning(server, whole, today, verdict):
    """Kaggle changes its images every few weeks; a month counts to its last day."""
    row = examine(whole, today=today)["images"]

    assert row.verdict == verdict
    assert "constraints/ holds gpu-image as of 2026-10-31" in row.found
    assert len(row.found) < 120  # one line, of what the files say in full


def test_versions_without_a_date_are_not_called_new(server, whole):
    """Nor is that a failure."""
    (whole / "constraints" / "gpu-image.txt").write_text("# GPU\nkeras==3.13.2\n")

    assert examine(whole)["images"].verdict == SKIP


def printed_by(folder: Path, between: Between, kernel: str, shape: str, **versions: str) -> None:
    """Write a pulled run whose first cell has printed these versions."""
    folder = folder / "runs" / f"digits-{kernel}-v3"
    folder.mkdir(parents=True)
    run, at = f"ann/digits-{kernel}/3", "2027-03-01T10:00:00+00:00"
    server = between.address.removeprefix("http://")
    (folder / ".pulled.json").write_text(json.dumps({"run": run, "server": server, "at": at}))
    (folder / "bundle.json").write_text(json.dumps({"machine_shape": shape}))
    line = f"Versions: {json.dumps({'python': '3.12.13', **versions})}"
    (folder / f"digits-{kernel}.log").write_text(f"2 x Tesla T4 (gpu)\n{line}\nDone\n")


@pytest.mark.parametrize(
    ("kernel", "shape", "numpy", "verdict", "said"),
    [
        ("infer-gpu", "NvidiaTeslaT4", "2.0.2", PASS, "ann/digits-infer-gpu/3 had these"),
        ("train-tpu", "NvidiaTeslaT4", "2.0.2", PASS, "ann/digits-train-tpu/3 had these"),
        ("infer-gpu", "NvidiaTeslaT4", "2.1.3", WARN, "had numpy==2.1.3 on the GPU"),
        ("train-tpu", "TpuV5E8", "2.1.3", WARN, "the GPU image was looked at 212 days ago"),
    ],
)
def test_the_versions_that_a_run_printed_are_compared_with_the_constraints(
    server, whole, kernel, shape, numpy, verdict, said
):
    """By the machine that it ran on, whatever variant of a package that has."""
    printed_by(whole, server, kernel, shape, numpy=numpy, keras="3.13.2", tensorflow="2.20.0")

    row = examine(whole, today=date(2027, 5, 31))["images"]

    assert row.verdict == verdict and said in row.found


def test_one_of_several_pins_of_an_image_is_enough(server, whole):
    """Kaggle gives the old image and the new one for a while."""
    (whole / "constraints" / "gpu-image-2027-01.txt").write_text(
        "# GPU image as of 2027-01-10, Python 3.12\nkeras==3.13.2\nnumpy==2.1.3\n"
    )
    printed_by(whole, server, "infer-gpu", "NvidiaTeslaT4", numpy="2.1.3")

    assert examine(whole, today=date(2027, 5, 31))["images"].verdict == PASS


def test_each_file_of_this_repository_s_constraints_says_as_of_when_and_which_python():
    """The row is for them."""
    from deploy.setup import kaggle_images

    found = kaggle_images.images(ROOT)

    assert {image.accelerator for image in found} == {"TPU", "GPU"} and len(found) == 3
    assert all(image.day and "python" in image.versions for image in found)


def test_a_full_disk_is_found_before_the_pull(server, whole, monkeypatch):
    """An artifact and its checkpoints have hundreds of megabytes."""
    monkeypatch.setattr(doctor, "FREE_BYTES", 10**18)

    rows = examine(whole)

    assert (rows["disk"].verdict, rows["disk"].exit_code, code(rows)) == (FAIL, 8, 2)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('[project]\nrequires-python = ">=3.90,<3.99"\n', FAIL),
        ("[project]\n", SKIP),
        ("(", SKIP),
        ("\x00", SKIP),
    ],
)
def test_another_python_is_found(server, whole, text, verdict):
    """pyproject.toml knows the range."""
    (whole / "pyproject.toml").write_text(text)

    assert examine(whole)["python"].verdict == verdict


@pytest.mark.parametrize(
    ("package", "version", "verdict"),
    [
        ("kaggle", "2.2.4", PASS),
        ("kaggle", "2.2.5", PASS),
        ("kaggle", "2.2.9", WARN),
        ("kaggle", "2.3.0", WARN),
        ("kaggle", "2.1.0", FAIL),
        ("kagglesdk", "0.1.40", WARN),
    ],
)
def test_a_client_that_was_not_tested_is_a_warning(
    server, whole, monkeypatch, package, version, verdict
):
    """One that is too old is refused."""
    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == package else real(name)
    )

    rows = examine(whole)

    assert rows["client"].verdict == verdict
    assert rows["login"].verdict == (SKIP if verdict == FAIL else PASS)


def test_a_client_that_cannot_be_imported_is_named_with_the_command(whole, tmp_path):
    """It needs six, and does not say so."""
    program = (
        "import sys; sys.modules['six'] = None\n"
        "from pathlib import Path\nfrom deploy.setup import doctor\n"
        "rows = doctor.examine(Path(sys.argv[1]), lambda: None)\n"
        "print(*[f'{row.verdict} {row.found} {row.fix}' for row in rows if row.name == 'client'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(whole)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (
        done.stdout.startswith("FAIL The Kaggle client cannot be imported") and "six" in done.stdout
    ), done.stderr
    assert "pip install" in done.stdout
