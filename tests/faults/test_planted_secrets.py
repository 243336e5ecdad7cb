"""Secrets in typical places are found, and none of our code writes them.

A user's commands run in a copy of the project, with VERBOSE=1 set, against a local Kaggle.
"""

import base64
import itertools
import os
import random
import re
import shutil
import string
import subprocess
import sys

import pytest

from deploy import secrets
from localkaggle.faults import instead
from localkaggle.server import USER, LocalKaggle
from tests.faults.matrix import CALLS
from tests.faults.world import competition
from tests.shipped import DIGITS, copied

PULLED = "digits-train-tpu-v1"
FRAGMENT = 12  # characters; a part of a secret of this length counts as the secret
LETTERS, HEX = string.ascii_letters + string.digits, string.hexdigits[:16]
# Place → form of the secret, its length and letters, the step that meets it, and the text of the
# refusal. Without a text the step does not refuse it, and shows it redacted.
PLACES = {
    "environment": ("KAGGLE_KEY={}", 32, HEX, "", ""),
    "notebook cell": ("KGAT_{}", 32, HEX, "refused", r"a Kaggle token .* cell \d+ \(client"),
    "config module": (
        'AWS_SECRET_ACCESS_KEY = "{}"', 40, LETTERS,
        "refused", r"an API key .*\(%%writefile .*/digits\.py\), line \d",
    ),
    "manifest.json": (
        "https://storage.googleapis.com/x?X-Goog-Signature={}", 256, HEX,
        "publish", r"manifest\.json seems to contain (?:.*\n)+  - a signed URL, line \d",
    ),
    "error page": ("Authorization: Bearer KGAT_{}", 32, HEX, "error page", ""),
    "failed run": ("cannot reach it with sk-proj-{}", 48, LETTERS, "watch", ""),
    "traceback": ("cannot clone https://ann:{}@example.com/x", 24, LETTERS, "fall", ""),
}  # fmt: skip
# A notebook with secrets, and one that prints some when it runs.
PLANTED = """# %%
client.login("{cell}")
"""
TELLING = """# %%
import hashlib
import json
from pathlib import Path

said = [bytes.fromhex(text).decode() for text in {hidden}]
digest = hashlib.sha256(b"weights").hexdigest()
manifest = {{
    "format": 1,
    "run_id": "r1",
    "weights_sha256": digest,
    "bundle_sha256": json.loads(Path("bundle.json").read_text())["bundle_sha256"],
    "files": {{"weights.npz": {{"sha256": digest, "size": 7}}}},
    "metrics": said[1:],
}}
Path("artifact").mkdir()
Path("artifact/weights.npz").write_bytes(b"weights")
text = lambda: json.dumps(manifest, indent=2, sort_keys=True) + "\\n"
manifest["manifest_sha256"] = hashlib.sha256(text().encode()).hexdigest()
Path("artifact/manifest.json").write_text(text())
raise RuntimeError(said[0])
"""
FALL = """
import sys, threading

from commands import console

def fall(options):
    text = sys.stdin.read()
    def fall_aside():
        raise ValueError(text)
    aside = threading.Thread(target=fall_aside)
    aside.start()
    aside.join()
    raise RuntimeError(text) from KeyError(text)

console.reported(fall, {})
"""


def drawn(seed):
    """Return {place: (text, the secret part of it)}."""
    draw, found = random.Random(seed), {}  # noqa: S311 - they guard nothing
    for place, (form, size, letters, *_) in PLACES.items():
        # Always with letters and digits.
        value = "".join(draw.choices(letters, k=size - 4)) + "e0c4"
        found[place] = form.format(value), value
    return found


@pytest.fixture(scope="module")
def planted(tmp_path_factory, seed):
    """Plant all secrets, run the commands that meet them, and return their output, and whether each
    refused step sent something.
    """
    texts = {place: text for place, (text, _) in drawn(seed).items()}
    folder = tmp_path_factory.mktemp("planted")
    project = copied(folder / "project")
    environment, printed, hosted = dict(os.environ), {}, [competition()]

    def run(name, *words, given=""):
        environment["PYTHONPATH"] = str(project)
        printed[name] = subprocess.run(
            [sys.executable, *words], cwd=project, env=environment, input=given.encode(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
        ).stdout  # fmt: skip

    def invoke(task, name="", *more):
        yes = ["--yes"] * task.startswith("push")
        run(name or task, "-m", "invoke", task, "--json", *yes, *more)

    with LocalKaggle(folder / "kaggle", competitions=hosted, offline=True) as local:
        local.oauth.key = texts["environment"].partition("=")[2]
        environment |= {**local.environment, "KAGGLE_KEY": local.oauth.key, "VERBOSE": "1"}
        plant(project, texts)
        invoke("push-train", "refused")
        sent = {"refused": (project / "build").exists() or "SaveKernel" in calls(local)}
        clean(project, [texts["failed run"], texts["manifest.json"]])
        for task in ("push-train", "watch", "pull", "publish"):
            invoke(task)
        run("fall", "-c", FALL, given=texts["traceback"])
        own = base64.b64encode(f"{USER}:{local.oauth.key}".encode()).decode()
        message = f"Bad request, Authorization: Basic {own}, and {texts['error page']}"
        for call in CALLS["push-train"]:
            refusal = instead(400, {"code": 400, "message": message})
            local.faults.say(call, itertools.repeat(refusal))
        invoke("push-train", "error page", "--again")
        sent["publish"] = "StartBlobUpload" in calls(local)
        printed |= {name: held(project / name) for name in ("build", "runs")}
        printed["temporary files"] = held(folder / local.environment["TMPDIR"])
    assert all(printed[name] for name in ("push-train", "build", "runs"))
    return printed, sent, own


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_planted_secret_is_found_and_no_part_of_it_is_written(planted, place, seed):
    """Neither to stdout, stderr and the journal nor to build/ and runs/."""
    printed, sent, own = planted
    *_, step, words = PLACES[place]
    text, value = drawn(seed)[place]

    for secret in (value, own):
        parts = [
            secret[start : start + FRAGMENT].encode() for start in range(len(secret) - FRAGMENT + 1)
        ]
        assert not [name for name, data in printed.items() if any(part in data for part in parts)]
    if words:
        assert not sent[step] and re.search(words, printed[step].decode())
    elif step:
        assert secrets.redact(text).encode() in printed[step]


def plant(project, texts):
    """Put two secrets into the project, so that its push is refused."""
    kernel = project / "kernels" / "train-tpu"
    (kernel / "notebook.py").write_text(PLANTED.format(cell=texts["notebook cell"]))
    with (project / "pipeline" / "configs" / "digits.py").open("a") as file:
        file.write(f"\n{texts['config module']}\n")


def clean(project, telling):
    """Remove them, and write a notebook that has others encoded and prints them."""
    shutil.copy(DIGITS, project / "pipeline/configs/digits.py")
    hidden = [text.encode().hex() for text in telling]
    (project / "kernels" / "train-tpu" / "notebook.py").write_text(TELLING.format(hidden=hidden))


def calls(local):
    return {call[0] for call in local.journal}


def held(folder):
    """Return all names and bytes in a folder, without pulled output."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = (path for path in files if PULLED not in path.parts)
    return b"\n".join(str(path).encode() + b"\n" + path.read_bytes() for path in found)
