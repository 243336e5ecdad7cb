"""The commands of docs/by-hand.md, which are Kaggle's own."""

import json
import re

import pytest

from deploy.errors import Refused
from tests.contract.conftest import scored, spends
from tests.localkaggle.pushed_notebooks import notebook

pytestmark = [
    pytest.mark.slow,  # each of its commands is a process
    pytest.mark.fact("`KAGGLE_API_ENVIRONMENT=LOCALHOST` + `http_proxy` leads client, CLI"),
]
SUBMITTED = pytest.mark.fact("A submission is counted at once, listed first with what was said of")
CELL = """
import glob, os, pathlib, shutil
root = os.environ.get("LOCALKAGGLE_ROOT", "/kaggle")
def mounted(name):  # where a machine has no namespaces, inputs are links
    return glob.glob(f"{root}/input/**/{name}", recursive=True)[0]
pathlib.Path("deep").mkdir()
shutil.copy(mounted("mine.txt"), "deep/copy.txt")
shutil.copy(mounted("sample_submission.csv"), "submission.csv")
"""


@pytest.fixture(scope="module")
def dataset(site, tmp_path_factory) -> str:
    """A dataset of two versions, made by `kaggle datasets create` and `version`."""
    handle, folder = site.name("data"), tmp_path_factory.mktemp("model")
    site.datasets.add(handle)
    told = {"id": handle, "title": handle.split("/")[1], "licenses": [{"name": "CC0-1.0"}]}
    (folder / "dataset-metadata.json").write_text(json.dumps(told))
    for number, words in enumerate((["create"], ["version", "-m", "what is new"]), 1):
        (folder / "mine.txt").write_text(f"version {number}")
        site.command(["datasets", *words, "-p", str(folder)], folder)
        site.ready(handle, number)
    assert "ready" in site.command(["datasets", "status", handle], folder)
    return handle


@pytest.fixture(scope="module")
def pushed(site, dataset, tmp_path_factory) -> str:
    """A notebook that ran to its end, made by `kaggle kernels push`."""
    handle, folder = site.name("pushed"), tmp_path_factory.mktemp("kernel")
    site.kernels.add(handle)
    metadata = {
        "id": handle,
        "title": handle.split("/")[1].replace("-", " ").title(),
        "code_file": "work.ipynb",
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_internet": False,
        "dataset_sources": [dataset, f"{handle}-missing"],
        "competition_sources": [site.competition(files=False)],
    }
    (folder / "kernel-metadata.json").write_text(json.dumps(metadata))
    (folder / "work.ipynb").write_text(notebook(CELL))
    said = site.command(["kernels", "push", "-p", str(folder)], folder)
    assert "Kernel version 1 successfully pushed" in said and f"{handle}-missing" in said
    assert site.ended(handle) == "COMPLETE"
    assert '"KernelWorkerStatus.COMPLETE"' in site.command(["kernels", "status", handle], folder)
    return handle


@pytest.mark.fact("`kernels push` exits 0 when it was refused; refused sources are only printed")
def test_what_was_pushed_found_the_newest_version_and_left_its_output(site, pushed, tmp_path):
    site.command(["kernels", "output", pushed, "-p", "trained"], tmp_path)

    assert (tmp_path / "trained/deep/copy.txt").read_text() == "version 2"


@SUBMITTED
def test_a_version_is_submitted_and_listed(site, pushed, tmp_path):
    spends("submission")
    slug = site.competition(files=False)

    words = ["submit", slug, "-f", "submission.csv", "-k", pushed, "-v", "1", "-m", "by hand"]
    site.command(["competitions", *words], tmp_path)

    listed = site.command(["competitions", "submissions", slug], tmp_path)
    assert re.search(r"submission\.csv .* by hand ", listed)


@SUBMITTED
@pytest.mark.fact("The scored rerun sets `KAGGLE_IS_COMPETITION_RERUN`, has the hidden test set")
def test_a_notebook_is_scored_on_what_its_rerun_writes(site, pushed):
    spends("submission")
    slug = site.competition(files=False)
    left, log = site.kaggle.submission_limits(slug).allowed_now, site.kaggle.kernel_log(pushed, 1)

    sent = {"file_name": "submission.csv", "description": "relay-contract"}
    ref = site.kaggle.submit_code(slug, pushed, 1, **sent)

    assert float(scored(site, slug, ref, left, "relay-contract")) > 0
    assert site.kaggle.kernel_log(pushed, 1) == log


def test_a_file_is_submitted(site, tmp_path):
    spends("submission")
    slug = site.competition(files=True)
    site.kaggle.download_competition_file(slug, "sample_submission.csv", tmp_path / "mine.csv")

    words = ["submit", slug, "-f", str(tmp_path / "mine.csv"), "-m", "by hand"]
    site.command(["competitions", *words], tmp_path)

    assert site.kaggle.list_submissions(slug)[0].description == "by hand"


@pytest.mark.fact("A competition for files refuses a notebook.")
def test_a_competition_for_files_takes_no_notebook(site, pushed):
    spends("submission")
    sent = {"file_name": "submission.csv", "description": "relay-contract"}

    with pytest.raises(Refused):
        site.kaggle.submit_code(site.competition(files=True), pushed, 1, **sent)
