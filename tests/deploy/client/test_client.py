"""Questions to Kaggle are retried, orders are sent once, and silence has an end. A broken client is
refused before anything else is done.
"""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deploy import auth
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import BadAnswer, CredentialError, NotFound, Unreachable, UsageError
from tests.deploy.between import HANG, RESET
from tests.deploy.invoked import ROOT

QUICK = Pace(first=0.05, most=0.2, patience=5)


@pytest.mark.parametrize(
    "blips",
    [
        [(429, {"code": 429, "message": "Too many requests"}, {"Retry-After": "0"})] * 3,
        [(200, b"<html>a login page</html>")],
        [(200, {"code": "404", "message": "a code that is a text"})],
        [(500, b""), RESET, (502, b"")],
    ],
)
def test_a_question_survives_blips(kaggle, between, blips):
    """One 502 once ended a watch of nine hours."""
    between.say(
        "GetAcceleratorQuotaStatistics",
        [*blips, {"tpuQuota": {"timeUsed": "0s", "totalTimeAllowed": "108000s"}}],
    )

    assert kaggle.quota().tpu_seconds == 108_000
    assert between.count("GetAcceleratorQuotaStatistics") == len(blips) + 1


@pytest.mark.parametrize("silence", [HANG, (503, b"")])
def test_silence_ends_as_unreachable(between, silence):
    """The client itself has no timeouts and waits for ever."""
    kaggle = Kaggle.connect(pace=Pace(first=0.05, most=0.1, patience=0.3), timeouts=(1, 0.3))
    between.always("GetAcceleratorQuotaStatistics", silence)

    with pytest.raises(Unreachable) as caught:
        kaggle.quota()

    assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [(404, NotFound, "not found"), (401, CredentialError, "expired or are wrong")],
)
def test_a_refusal_is_not_repeated(kaggle, between, code, error, said):
    """It will not change, and a wrong key will not become right."""
    between.always("GetKernelSessionStatus", (code, {"code": code, "message": "not found"}))

    with pytest.raises(error, match=said):
        kaggle.kernel_status("ann/digits-train-tpu", 1)

    assert between.count("GetKernelSessionStatus") == 1


def test_all_pages_are_read(kaggle, between):
    """The official client once stopped after the first."""
    pages = [
        {"files": [{"fileName": f"{n}", "url": "u"}], "nextPageToken": str(n) if n < 5 else ""}
        for n in range(1, 6)
    ]
    between.say("ListKernelSessionOutput", pages)

    files, _ = kaggle.kernel_output("ann/x-train-tpu", 1)

    assert list(files) == ["1", "2", "3", "4", "5"]
    assert all(body["versionLabel"] == "v1" for body in between.bodies("ListKernelSessionOutput"))


def test_pages_that_repeat_end_at_the_first_repetition(kaggle, between):
    """They would be asked for a thousand times."""
    between.always("ListKernelSessionOutput", {"files": [], "nextPageToken": "1"})

    with pytest.raises(BadAnswer, match="repeats the pages"):
        kaggle.kernel_output("ann/x-train-tpu", 1)

    assert between.count("ListKernelSessionOutput") == 2


def test_an_expired_token_does_not_spoil_a_good_key(between, monkeypatch):
    """The client falls back to the key and then sends the expired token all the same."""
    monkeypatch.setenv("KAGGLE_USERNAME", "ann")
    monkeypatch.setenv("KAGGLE_KEY", "the-key")
    monkeypatch.setenv("KAGGLE_API_TOKEN", "KGAT_expired")
    between.say("IntrospectToken", [(404, {"code": 404, "message": "Token not found"})])
    between.say("GetAcceleratorQuotaStatistics", [{}])
    sent, answer = [], between._answer

    def note(handler):
        sent.append(handler.headers["Authorization"])
        answer(handler)

    monkeypatch.setattr(between, "_answer", note)

    Kaggle.connect(pace=QUICK).quota()

    assert sent[-1].startswith("Basic ")


def test_the_kaggle_side_starts_without_the_client():
    """Importing kaggle logs in; nothing but connecting may do that."""
    code = "import sys, deploy.chain, deploy.client; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)

    imported = done.stdout.decode().split()
    assert "deploy.client" in imported
    assert not {"kaggle", "kagglesdk", "jupytext"} & set(imported)


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"username": 3, "key": 4}'])
def test_credentials_that_cannot_be_read_are_named_as_such(between, tmp_path, monkeypatch, content):
    """Not the network is at fault; and what is in the file is not shown."""
    monkeypatch.delenv("KAGGLE_USERNAME")
    monkeypatch.delenv("KAGGLE_KEY")
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path))
    (tmp_path / "kaggle.json").write_bytes(content)

    with pytest.raises(CredentialError) as caught:
        Kaggle.connect()

    assert caught.value.exit_code == 3


# A client that another package's pins have broken


def installed(folder: Path, name: str, version: str, *needs: str) -> None:
    """Make a package look installed in a folder."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    (place / "METADATA").write_text("\n".join(lines) + "\n")


def test_a_client_that_keras_hub_broke_is_named_first_with_the_command(tmp_path):
    installed(tmp_path, "kagglesdk", "0.1.28")
    installed(tmp_path, "keras-hub", "0.31.1", "keras>=3.15", "kagglesdk==0.1.28")
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "dry-run"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    said = done.stdout + done.stderr
    assert done.returncode == 2
    assert "The Kaggle client cannot be imported: it needs kagglesdk" in said
    assert "0.1.28 is installed, as keras-hub 0.31.1 pins it" in said
    assert auth.INSTALL in said and "Started a local Kaggle" not in said


def test_a_client_that_is_not_installed_is_named_with_the_command(monkeypatch):
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)

    with pytest.raises(UsageError, match=r"kaggle is not installed.*\.\n.*\npip install 'kaggle"):
        auth.require_client()


def test_a_client_without_what_is_used_of_it_is_named_with_the_command():
    with pytest.raises(UsageError, match=r"kagglesdk [\d.]+ .*: object has no _gone") as one:
        auth.require_parts(object(), ("__class__", "_gone"))

    assert str(one.value).endswith(auth.INSTALL)


def test_the_command_that_installs_the_client_is_what_the_project_needs():
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ours = [need for need in needs if need.startswith("kaggle")]

    assert len(ours) == 2 and all(f"'{need}'" in auth.INSTALL for need in ours)
