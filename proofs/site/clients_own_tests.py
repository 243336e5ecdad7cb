"""How many of the client's own tests of a server pass against the local Kaggle.

Kaggle made them for a local server of its own, and expects there what its database has. So some
names in them become ones that are here, and the client first makes what it will look for: a public
kernel, its submission, public datasets and a public model.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from proofs.shared.results_table import Row, Show

CLAIM = "The client's own tests of a server, against `python -m localkaggle serve`"
AT_LEAST, LEFT_OUT = 45, re.compile(r"test_(forums|benchmark)_|_topics?_|_topics$")
FOLDER = "CLIENTS_OWN_TESTS"  # names a folder with the tests; no KAGGLE_, which the client reads
MODULE, COMPETITION, KERNEL = "backend_tests", "digits", "first-kernel"
SECONDS = 1800  # the tests sleep for some minutes in all

# What Kaggle's tests name, and what stands for it here.
NAMES = {
    '"house-prices-advanced-regression-techniques"': f'"{COMPETITION}"',
    '"stevemessick"': "test_user",
    '"kerneler/sqlite-global-default"': f'f"{{test_user}}/{KERNEL}"',
}

# The client alone makes what its tests look for: eleven datasets, since they ask for more than ten.
SEED = f"""
import json, pathlib, time
from kaggle import api

user = api.config_values["username"]

def folder(name, metadata, told, **files):
    made = pathlib.Path(name)
    made.mkdir()
    (made / metadata).write_text(json.dumps(told))
    for file, text in files.items():
        (made / file.replace("__", ".")).write_text(text)
    return str(made)

pushed = api.kernels_push(folder("kernel", "kernel-metadata.json", {{
    "id": f"{{user}}/{KERNEL}", "title": "First kernel", "code_file": "main.py",
    "language": "python", "kernel_type": "script", "is_private": False, "enable_internet": False,
    "competition_sources": ["{COMPETITION}"],
}}, main__py="import glob, shutil\\nfound, = glob.glob('/kaggle/input/**/sample_submission.csv', "
    "recursive=True)\\nshutil.copy(found, 'submission.csv')\\n"))
assert not pushed.error, pushed.error
for number in range(11):
    made = api.dataset_create_new(folder(f"dataset-{{number}}", "dataset-metadata.json", {{
        "id": f"{{user}}/tables-{{number}}", "title": f"Tables {{number}}",
        "licenses": [{{"name": "other"}}],
    }}, table__bigquery="number", table__csv="number\\n1\\n"), public=True)
    assert made.status == "ok", made.error
made = api.model_create_new(folder("model", "model-metadata.json", {{
    "ownerSlug": user, "slug": "first-model", "title": "First model", "isPrivate": False,
    "description": "",
}}))
assert not made.error, made.error
while api.kernels_status(f"{{user}}/{KERNEL}").status.name in ("QUEUED", "RUNNING"):
    time.sleep(0.5)
api.competition_submit_code(
    "submission.csv", "first", "{COMPETITION}", f"{{user}}/{KERNEL}", str(pushed.version_number)
)
while api.competition_submissions("{COMPETITION}")[0].status.name == "PENDING":
    time.sleep(0.5)
"""

RUN = f"""
import json, sys, unittest

suite = unittest.defaultTestLoader.loadTestsFromName("{MODULE}")
asked = [test.id().rpartition(".")[2] for group in suite for test in group]
result = unittest.TextTestRunner(verbosity=2).run(suite)
bad = [*result.failures, *result.errors, *result.skipped]
missed = sorted({{test.id().rpartition(".")[2] for test, _ in bad}})
json.dump({{"asked": asked, "missed": missed}}, open(sys.argv[1], "w"))
"""


def row(root: Path, show: Show) -> Row:
    """Return the row; where the tests are nowhere to be had, it says so and gives no figure."""
    target = f"≥ {AT_LEAST} of 54, where the tests are at hand"
    with tempfile.TemporaryDirectory(prefix="prove-site-") as scratch:
        found, said = _tests(Path(scratch))
        if found is None:
            return Row(CLAIM, target, f"not measured: {said}", True)
        show(f"# {said}; some minutes")
        # They look for a client two folders up, and leave their files where they are.
        place = Path(scratch) / "client" / "tests" / "backend"
        shutil.copytree(found, place)
        with _served(root, Path(scratch) / "server") as environment:
            _prepare(place, environment)
            listed = Path(scratch) / "listed.json"
            done = _python(RUN, place, environment, str(listed))
        if not listed.exists():
            raise RuntimeError(f"The client's own tests did not run:\n{done[-3000:]}")
        told = json.loads(listed.read_text())
    asked, missed = len(told["asked"]), told["missed"]
    others = [name for name in missed if not LEFT_OUT.search(name)]
    figure = f"{asked - len(missed)} of {asked}, {said}"
    figure += f"; not: {', '.join(missed) or 'none'}"
    show(f"# not of forums, topics or benchmarks: {', '.join(others) or 'none'}")
    return Row(CLAIM, target, figure, asked - len(missed) >= AT_LEAST)


def _tests(scratch: Path) -> tuple[Path | None, str]:
    """Return the folder with the tests, and where they are from, or why there are none."""
    installed = version("kaggle")
    if FOLDER in os.environ:
        folder = Path(os.environ[FOLDER])
        if not (folder / f"{MODULE}.py").is_file():
            raise FileNotFoundError(
                f"{FOLDER}={folder} has no {MODULE}.py; expected tests/backend of Kaggle's client"
            )
        return folder, f"tests of the folder {FOLDER}, client {installed}"
    source = f"the source distribution of kaggle {installed}"
    words = ("download", "--no-binary", ":all:", "--no-deps", "--dest", str(scratch))
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, f"kaggle=={installed}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    archive = next(scratch.glob("kaggle-*.tar.gz"), None)
    if done.returncode or archive is None:
        return None, f"pip could not get {source} ({FOLDER} may name a folder with the tests)"
    with tarfile.open(archive) as file:
        file.extractall(scratch / "source", filter="data")
    module = next((scratch / "source").rglob(f"{MODULE}.py"), None)
    if module is None:
        return None, f"{source} has none ({FOLDER} may name a folder with them)"
    return module.parent, f"tests of {source}"


@contextmanager
def _served(root: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Serve in a process of its own, and give the environment that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "localkaggle", "serve", "--folder", str(folder)],
        cwd=root, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        told = dict(os.environ)
        for name in ("KAGGLE_API_TOKEN", "KAGGLE_API_V1_TOKEN"):
            told.pop(name, None)
        for line in process.stdout:
            words = shlex.split(line, comments=True)
            if words[:1] == ["export"]:
                name, _, value = words[1].partition("=")
                told[name] = value
            if "Ctrl-C" in line:
                break
        yield told
    finally:
        process.terminate()
        process.wait()


def _prepare(place: Path, environment: Mapping[str, str]) -> None:
    """Name what is here in the tests, get the submission that they upload, and seed the server.

    Raises:
        ValueError: if the tests do not have one of the names: they are others than these.
    """
    text = (place / f"{MODULE}.py").read_text()
    for name, here in NAMES.items():
        if name not in text:
            raise ValueError(f"{MODULE}.py has no {name}; correct proofs.site.clients_own_tests")
        text = text.replace(name, here)
    (place / f"{MODULE}.py").write_text(text)
    seeds = place.parent / "seeds"
    seeds.mkdir()
    _python(SEED, seeds, environment, fails=True)
    sample = "sample_submission.csv"
    fetch = (
        f"from kaggle import api; api.competition_download_file('{COMPETITION}', '{sample}', '.')"
    )
    (place / sample).unlink(missing_ok=True)
    _python(fetch, place, environment, fails=True)


def _python(
    code: str, folder: Path, environment: Mapping[str, str], *words: str, fails: bool = False
) -> str:
    """Run a program in a folder and return what it prints.

    Raises:
        RuntimeError: if `fails` and it ends badly.
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder, env=dict(environment), timeout=SECONDS, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if fails and done.returncode:
        raise RuntimeError(f"The client ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout
