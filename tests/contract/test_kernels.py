"""The contract of our client's calls about notebooks, and what a notebook finds on Kaggle."""

import json
from dataclasses import dataclass

import pytest
import requests

from deploy.calls import SAVE
from deploy.errors import CredentialError, Denied, NotFound, Refused
from tests.contract.conftest import Site, told

ABSENT = pytest.mark.fact("Kaggle also returns 403 if something does not exist")
RUNS = pytest.mark.fact("A run ends as COMPLETE, or as ERROR with the reason; its log is JSON")
# Tells what it finds, and leaves files.
TELLS = """
import glob, json, os, pathlib
root = os.environ.get("LOCALKAGGLE_ROOT", "/kaggle")
working, inputs = pathlib.Path(root, "working"), pathlib.Path(root, "input")
# Where a machine has no namespaces, inputs are links.
found = [os.path.relpath(path, inputs) for path in glob.glob(f"{inputs}/*/*/**", recursive=True)]
pathlib.Path("deep").mkdir()
pathlib.Path("deep/two.bin").write_bytes(bytes(range(256)))
print(json.dumps({
    "works in its output": os.path.samefile(os.getcwd(), working),
    "kind": os.environ.get("KAGGLE_KERNEL_RUN_TYPE"),
    "found": sorted(found)[:9999],
    "writes to its input": os.access(inputs, os.W_OK) and not os.environ.get("LOCALKAGGLE_ROOT"),
}))
"""


@dataclass(frozen=True)
class Run:
    """A run that has ended, the files that it left, and what it printed."""

    handle: str
    name: str
    files: dict[str, str]
    lines: list[str]
    sources: dict[str, str]


def seen(site: Site, handle: str, **sources: str) -> Run:
    name = site.ended(handle)
    files, _ = site.kaggle.kernel_output(handle, 1)
    return Run(handle, name, files, site.kaggle.kernel_log(handle, 1), sources)


@pytest.fixture(scope="module")
def run(site, tmp_path_factory) -> Run:
    """A run with a source of two kinds."""
    data, competition = site.name("data"), site.competition(files=True)
    site.publish(data, tmp_path_factory.mktemp("data"), **{"mine.txt": b"mine"})
    handle = site.name("run")
    sources = {"competition_sources": [competition], "dataset_sources": [data]}
    site.push(handle, TELLS, **sources)
    return seen(site, handle, competition=competition, data=data)


@pytest.fixture(scope="module")
def failed(site) -> Run:
    """A run that throws in its second cell of three."""
    handle = site.name("failed")
    site.push(handle, "open('kept.txt', 'w').close()", "{}['no such key']", "print('never')")
    return seen(site, handle)


@pytest.fixture(scope="module")
def saved(site) -> str:
    """The address of a notebook of two versions that never ran."""
    handle = site.name("saved")
    for number in (1, 2):
        answer = site.push(handle, f"print({number})", execution=SAVE, machine_shape="")
        assert (answer.version, answer.error) == (number, "")
    return handle


@pytest.mark.fact("A notebook's versions are numbered from 1; one that is only saved")
def test_a_draft_has_the_status_new_script(site, saved):
    assert [site.kaggle.kernel_status(saved, number).name for number in (1, 2)] == [
        "NEW_SCRIPT",
        "NEW_SCRIPT",
    ]


@pytest.mark.fact("A version keeps its source and its settings; without a number, the newest is")
def test_a_version_keeps_its_source_and_settings(site, saved):
    newest, first = site.kaggle.get_kernel(saved), site.kaggle.get_kernel(saved, 1)

    assert (newest.version, first.version) == (2, 1)
    cells = [json.loads(source.text)["cells"][0]["source"] for source in (newest, first)]
    assert ["".join(cell) for cell in cells] == ["print(2)", "print(1)"]
    assert (newest.asks["is_private"], newest.asks["enable_internet"]) == (True, False)


@pytest.mark.fact("Your own notebooks are listed with their newest version")
def test_own_notebooks_are_listed(site, saved, run):
    listed = [(one.handle, one.version) for one in site.kaggle.own_kernels()]

    assert {(saved, 2), (run.handle, 1)} <= {*listed}


@pytest.mark.fact("A new notebook's address is its title in lowercase, with - between the words")
def test_the_title_of_a_new_notebook_gives_its_address(site):
    asked = site.name("asked")
    titled = asked.replace("asked", "titled")

    title = titled.split("/")[1].replace("-", " ").title()
    answer = site.push(asked, "1", execution=SAVE, title=title)

    assert (answer.handle, answer.version) == (titled, 1)
    assert site.kaggle.get_kernel(asked) is None


@ABSENT
def test_what_does_not_exist_is_absent(site, saved):
    with pytest.raises(NotFound):
        site.kaggle.kernel_status(site.name("missing"), 1)
    with pytest.raises(NotFound):
        site.kaggle.kernel_status(saved, 9)
    assert site.kaggle.get_kernel(site.name("missing")) is None


@pytest.mark.fact("It only prints refused sources, and does not report refused models at all.")
def test_missing_sources_are_named_and_the_push_succeeds(site):
    missing = site.name("missing")
    asked = {
        "competition_sources": ["relay-contract-missing"],
        "dataset_sources": [missing],
        "kernel_sources": [missing],
        "model_sources": [f"{missing}/keras/none/1"],
    }

    answer = site.push(site.name("sources"), "1", execution=SAVE, **asked)

    assert (answer.version, answer.error) == (1, "")
    assert {kind: [*answer.invalid[kind]] for kind in asked} == asked


@ABSENT
def test_a_model_that_does_not_exist_is_not_shown(site):
    with pytest.raises((Denied, NotFound)):
        site.kaggle.look_at_model(f"{site.name('missing')}/Keras/none/1")


@pytest.mark.fact("The source of a kernel must be below 1 MB")
def test_a_source_of_a_megabyte_is_refused(site):
    handle = site.name("large")

    with pytest.raises(Refused, match="1 megabyte"):
        site.push(handle, "#" * 1024 * 1024, execution=SAVE)

    assert site.kaggle.get_kernel(handle) is None


@pytest.mark.fact("A deleted notebook cannot be found and is no longer listed.")
def test_a_deleted_notebook_is_gone_and_its_address_is_free(site):
    handle = site.name("deleted")
    site.push(handle, "1", execution=SAVE)

    site.kaggle.delete_kernel(handle)

    assert site.kaggle.get_kernel(handle) is None
    assert handle not in [one.handle for one in site.kaggle.own_kernels()]
    assert site.push(handle, "1", execution=SAVE).version == 1


@pytest.mark.fact("A wrong key returns 401.")
def test_a_wrong_key_opens_nothing(site, monkeypatch):
    for name in ("KAGGLE_API_TOKEN", "KAGGLE_API_V1_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAGGLE_USERNAME", site.kaggle.username)
    monkeypatch.setenv("KAGGLE_KEY", "0" * 32)

    with pytest.raises(CredentialError):
        type(site.kaggle).connect().quota()


@pytest.mark.fact("The weekly quota is reset on Saturday at 00:00 UTC")
def test_the_quota_says_what_is_left_and_when_it_returns(site):
    quota = site.kaggle.quota()

    assert 0 <= quota.tpu_seconds <= quota.tpu_allowed
    assert 0 <= quota.gpu_seconds <= quota.gpu_allowed
    assert (quota.renewed.weekday(), quota.renewed.hour, quota.renewed.minute) == (5, 0, 0)


@RUNS
@pytest.mark.fact("Notebooks are run in place by papermill, with the kernel `python3`")
@pytest.mark.fact(
    "Inputs are mounted at `/kaggle/input/{competitions/<slug>, datasets/<owner>/<slug>"
)
def test_a_notebook_runs_in_its_output_and_finds_its_sources(run):
    facts = told(run.lines)

    assert (run.name, facts["works in its output"], facts["kind"]) == ("COMPLETE", True, "Batch")
    assert f"datasets/{run.sources['data']}/mine.txt" in facts["found"]
    assert f"competitions/{run.sources['competition']}/train.csv" in facts["found"]
    assert facts["writes to its input"] is False


@RUNS
@pytest.mark.fact("The load balancer closes a log stream")
def test_a_log_can_be_followed_to_its_end(site, run):
    followed = "".join(text for _, text in site.kaggle.follow_log(run.handle, 1))

    assert followed.splitlines() == run.lines


@RUNS
def test_a_run_that_throws_says_why_and_leaves_what_it_had_written(site, failed):
    assert failed.name == "ERROR" and site.kaggle.kernel_status(failed.handle, 1).failure
    assert "KeyError: 'no such key'" in "\n".join(failed.lines)
    assert "never" not in failed.lines and "kept.txt" in failed.files


@pytest.mark.fact("Folders in an output are kept.")
@pytest.mark.fact("whether the file list of an output includes hidden and empty files")
def test_an_output_is_served_unchanged(site, run, tmp_path):
    site.kaggle.download(run.files["deep/two.bin"], tmp_path / "two.bin")

    assert (tmp_path / "two.bin").read_bytes() == bytes(range(256))


@pytest.mark.fact("Its signed URL serves the rest of a file (Range, 206), returns 404 for HEAD")
def test_a_signed_address_sends_the_rest_of_a_file(run):
    url = run.files["deep/two.bin"]

    rest = requests.get(url, headers={"Range": "bytes=250-"}, timeout=60)

    assert (rest.status_code, rest.content) == (206, bytes(range(250, 256)))
    assert requests.head(url, timeout=60).status_code == 404
