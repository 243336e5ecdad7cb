"""A refusal is not retried, all pages are read, and a broken client is refused first."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deploy import auth
from deploy.client import Kaggle
from deploy.errors import Ambiguous, CredentialError, Denied, NotFound, UsageError
from tests.deploy.invoked import ROOT

OUTPUT, STATUS = "ListKernelSessionOutput", "GetKernelSessionStatus"


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (404, NotFound, "may not submit"),
        (401, CredentialError, "are invalid or have expired"),
        (403, Denied, "must verify this account's phone number"),
    ],
)
def test_a_refusal_is_not_repeated(kaggle, between, code, error, said):
    """A retry cannot help, and no list tells more."""
    message = "You may not submit before you verify your phone number"
    between.always(STATUS, (code, {"code": code, "message": message}))

    with pytest.raises(error, match=said):
        kaggle.kernel_status("ann/digits-train-tpu", 1)

    assert [operation for operation, _ in between.seen] == [STATUS]


def test_all_pages_are_read(kaggle, between):
    """The official client once stopped after the first."""
    pages = [
        {"files": [{"fileName": n, "url": "u"}], "nextPageToken": n if n != "3" else ""}
        for n in ("1", "2", "3")
    ]
    between.say(OUTPUT, pages)

    files, _ = kaggle.kernel_output("ann/x-train-tpu", 1)

    asked = [(body["versionLabel"], body.get("pageToken")) for body in between.bodies(OUTPUT)]
    assert list(files) == ["1", "2", "3"]
    assert asked == [("v1", None), ("v1", "1"), ("v1", "2")]


def test_an_expired_token_does_not_spoil_a_good_key(between, monkeypatch):
    """The client falls back to the key and then sends the expired token all the same."""
    monkeypatch.setenv("KAGGLE_API_TOKEN", "KGAT_expired")
    between.say("IntrospectToken", [(404, {"code": 404, "message": "Token not found"})])

    kaggle = Kaggle.connect()

    assert kaggle.signed_by == "key" and kaggle._session.auth == ("ann", "not-a-key")


@pytest.mark.parametrize(
    ("token", "answer"),
    [
        ("KGAT_expired", (404, {"code": 404, "message": "Token not found"})),
        ("KGAT_expired", (401, {"code": 401, "message": "Unauthenticated"})),
        ("KGAT_expired", {"active": False, "username": "ann"}),
        ("KGAT_…", (500, b"")),  # as a page shows it; no header can hold that, or two lines
        ("KGAT_one\nKGAT_two", (500, b"")),
    ],
)
def test_an_invalid_token_is_named_with_its_place(between, monkeypatch, tmp_path, token, answer):
    """The network and its proxies are not at fault."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KAGGLE_API_TOKEN", token)
    between.say("IntrospectToken", [answer])

    with pytest.raises(CredentialError, match=r"KAGGLE_API_TOKEN: it has expired") as caught:
        Kaggle.connect()

    assert "\nunset KAGGLE_API_TOKEN" in str(caught.value)


def test_a_submission_without_a_number_shows_kaggle_s_message(kaggle, between):
    """No field says why."""
    between.say("CreateCodeSubmission", [{"message": "Come back tomorrow UTC"}])

    with pytest.raises(Ambiguous, match=r"no ref; message: Come back tomorrow UTC"):
        kaggle.submit_code("digits", "ann/x", 1, file_name="submission.csv", description="x")

    assert between.count("CreateCodeSubmission") == 1


def test_the_kaggle_side_starts_without_the_client():
    """Importing kaggle logs in, which only connecting may do."""
    code = "import sys, deploy.chain, deploy.client; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)

    imported = done.stdout.decode().split()
    assert "deploy.client" in imported
    assert not {"kaggle", "kagglesdk", "jupytext"} & set(imported)


def test_a_client_that_keras_hub_broke_is_named_first_with_the_command(tmp_path: Path):
    folder = tmp_path / "kagglesdk-0.1.28.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: kagglesdk\nVersion: 0.1.28\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "invoke", "dry-run"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)

    said = done.stdout + done.stderr
    assert done.returncode == 2
    assert "The Kaggle client cannot be used: expected kagglesdk" in said
    assert "0.1.28 is installed" in said
    assert auth.INSTALL in said and "Started a local Kaggle" not in said


def test_the_command_that_installs_the_client_is_what_the_project_needs(monkeypatch):
    monkeypatch.setattr(auth, "NEEDS", ("nothing-of-kaggle",))
    with pytest.raises(UsageError, match=r"nothing-of-kaggle is not installed\. Run:\npip install"):
        auth.require_client()

    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ours = [need for need in needs if need.startswith("kaggle")]

    assert len(ours) == 2 and all(f"'{need}'" in auth.INSTALL for need in ours)
