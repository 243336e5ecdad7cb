"""The contract of our client's calls about competitions."""

from datetime import datetime

import pytest

from deploy.errors import Refused
from tests.contract.conftest import scored, spends

SAMPLE = "sample_submission.csv"
SUBMITTED = pytest.mark.fact(
    "A submission counts immediately, is listed first with its description"
)

# Where a machine has no namespaces, inputs are links.
COPIES = f"""
import glob, os, shutil
root = os.environ.get("LOCALKAGGLE_ROOT", "/kaggle")
shutil.copy(glob.glob(f"{{root}}/input/**/{SAMPLE}", recursive=True)[0], "submission.csv")
"""
SENT = {"file_name": "submission.csv", "description": "relay-contract"}


@pytest.fixture(scope="module")
def ran(site) -> str:
    """The address of a notebook that ran and left a submission."""
    handle = site.name("scored")
    site.push(handle, COPIES, competition_sources=[site.competition(files=False)])
    assert site.ended(handle) == "COMPLETE"
    return handle


@pytest.mark.fact("`GetCompetition` returns `isKernelsSubmissionsOnly`, `userHasEntered`")
@pytest.mark.parametrize("files", [True, False])
def test_a_competition_says_what_it_takes_and_until_when(site, files):
    about = site.kaggle.competition(site.competition(files=files))

    assert (about.takes_files, about.entered, about.closed) == (files, True, False)
    assert about.daily > 0 and isinstance(about.ends, datetime)


@pytest.mark.fact("Before the rules are accepted, Kaggle returns 403")
def test_a_participant_gets_the_competition_s_files(site, tmp_path):
    slug = site.competition(files=True)

    site.kaggle.download_competition_file(slug, SAMPLE, tmp_path / SAMPLE)
    assert (tmp_path / SAMPLE).read_text().startswith("ImageId,Label\n")


@pytest.mark.fact("Kaggle also returns 403 if something does not exist")
def test_a_competition_that_does_not_exist_is_refused(site):
    with pytest.raises(Refused):
        site.kaggle.competition("relay-contract-missing")


@SUBMITTED
def test_a_file_is_scored(site, tmp_path):
    spends("submission")
    slug = site.competition(files=True)
    left = site.kaggle.submission_limits(slug).allowed_now
    site.kaggle.download_competition_file(slug, SAMPLE, tmp_path / SAMPLE)

    token = site.kaggle.upload_submission(slug, tmp_path / SAMPLE)
    ref = site.kaggle.submit_file(slug, token, description="relay-contract é")

    assert 0 < float(scored(site, slug, ref, left, "relay-contract é")) < 1


@pytest.mark.fact('A code competition rejects an upload with 400 "This competition only acc')
def test_a_competition_for_notebooks_takes_no_file(site, tmp_path):
    slug = site.competition(files=False)
    (tmp_path / SAMPLE).write_text("id,label\n")
    left = site.kaggle.submission_limits(slug)

    with pytest.raises(Refused, match="Submissions from Notebooks"):
        site.kaggle.submit_file(
            slug, site.kaggle.upload_submission(slug, tmp_path / SAMPLE), description=""
        )

    assert site.kaggle.submission_limits(slug) == left


@SUBMITTED
@pytest.mark.fact("The scored rerun sets `KAGGLE_IS_COMPETITION_RERUN`, has the hidden test set")
def test_a_notebook_is_scored_on_what_its_rerun_writes(site, ran):
    spends("submission")
    slug = site.competition(files=False)
    left, log = site.kaggle.submission_limits(slug).allowed_now, site.kaggle.kernel_log(ran, 1)

    ref = site.kaggle.submit_code(slug, ran, 1, **SENT)

    assert float(scored(site, slug, ref, left, "relay-contract")) > 0
    assert site.kaggle.kernel_log(ran, 1) == log


@pytest.mark.fact("A competition that accepts files refuses a notebook.")
def test_a_competition_for_files_takes_no_notebook(site, ran):
    spends("submission")

    with pytest.raises(Refused):
        site.kaggle.submit_code(site.competition(files=True), ran, 1, **SENT)
