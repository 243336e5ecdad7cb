"""A server hosts every competition under its slug, and builds none before it is asked for."""

import threading
from functools import partial
from typing import Any

import kagglesdk.competitions.types.competition_api_service as types
import pytest

from localkaggle.competitions import EMBEDDED, NAMES
from localkaggle.competitions.hosted import Hosted
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import Scripted, ran


def answer(session: Scripted) -> None:
    """Write zero for every row of the sample, or what cannot be scored if the notebook says so."""
    (folder,) = session.inputs.values()
    text = (folder / "sample_submission.csv").read_text()
    if session.rerun and "spoilt" in session.notebook:
        text = text.rsplit(",", 1)[0] + ",much\n"
    (session.working / "submission.csv").write_text(text)


def files(client: Any, slug: str) -> set[str]:
    request = make(types.ApiListDataFilesRequest, competition_name=slug, page_size=1000)
    return {
        file.name
        for file in client.competitions.competition_api_client.list_data_files(request).files
    }


def scored(kaggle: Any, client: Any, slug: str, cell: str) -> Any:
    """Push a notebook, submit it, and return the submission at its end."""
    version = ran(kaggle, client, cell, competition_data_sources=[slug])
    request = make(
        types.ApiCreateCodeSubmissionRequest,
        competition_name=slug,
        kernel_owner="rehearsal",
        kernel_slug="small-kernel",
        kernel_version=version.number,
        file_name="submission.csv",
    )
    ref = client.competitions.competition_api_client.create_code_submission(request).ref
    kaggle.submissions.submissions[ref].thread.join(60)
    asked = make(types.ApiGetSubmissionRequest, ref=ref)
    return client.competitions.competition_api_client.get_submission(asked)


def test_a_server_hosts_every_competition_and_builds_those_that_are_asked_for(kaggle, client):
    """One at a time, and in both its forms."""
    connected, folder = client(kaggle), kaggle.folder / "competitions"
    assert (tuple(kaggle.competitions), folder.exists()) == (NAMES, False)

    listed = files(connected, "diabetes")

    assert listed == {"train.csv", "test.csv", "sample_submission.csv"}
    assert sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*")) == [
        *("diabetes/hidden", "diabetes/visible", "diabetes/whole")
    ]
    assert "train.csv" in files(connected, "digits-csv") and len([*folder.iterdir()]) == 2


@pytest.mark.parametrize(
    ("slug", "score", "said"),
    [
        ("diabetes", "167.31569", "Column progression must be a finite number, found 'much'"),
        ("breast-cancer", "0.50000", "Column malignant must be a finite number, found 'much'"),
    ],
)
def test_a_competition_takes_a_code_submission(start, client, slug, score, said):
    """The sample has its score on the hidden test set; what cannot be scored has Kaggle's name for
    that, with the reason.
    """
    kaggle = start(session=partial(Scripted, answer))
    connected = client(kaggle)

    good, spoilt = (scored(kaggle, connected, slug, cell) for cell in ("'fine'", "'spoilt'"))

    assert (good.status.name, good.error_description, good.public_score) == ("COMPLETE", "", score)
    assert (spoilt.status.name, spoilt.public_score) == ("ERROR", "")
    assert spoilt.error_description == f"Submission Scoring Error: {said}"


def test_who_asks_whether_a_competition_is_there_builds_none(tmp_path):
    """Nor does who asks for their names."""
    hosted = Hosted(tmp_path, NAMES)

    assert (
        "diabetes" in hosted
        and "titanic" not in hosted
        and len(hosted) == len([*hosted]) == len(NAMES)
    )
    assert not [*tmp_path.iterdir()]


def test_what_is_not_hosted_cannot_be_asked_for(tmp_path):
    """Neither from the start, nor later."""
    with pytest.raises(KeyError, match="titanic"):
        Hosted(tmp_path, ["titanic"])
    with pytest.raises(KeyError, match="titanic"):
        Hosted(tmp_path, ["diabetes"]).folder("titanic")


def test_two_who_ask_at_once_get_the_same_competition(tmp_path, monkeypatch):
    """It is built once."""
    built, embedded = [], EMBEDDED["diabetes"]()
    monkeypatch.setitem(EMBEDDED, "diabetes", lambda: built.append(1) or embedded)
    hosted = Hosted(tmp_path, ["diabetes"])
    threads = [threading.Thread(target=hosted.folder, args=("diabetes",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert built == [1] and (hosted.folder("diabetes", hidden=True) / "test.csv").is_file()
