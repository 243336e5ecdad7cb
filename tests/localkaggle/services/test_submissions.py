"""Submissions: what is refused before anything reruns costs nothing, and of a rerun only the score
is seen.
"""

import io
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import kagglesdk.competitions.types.competition_api_service as types
import kagglesdk.kernels.types.kernels_api_service as kernel_types
import pytest
import requests
from kagglesdk.kernels.types.kernels_enums import KernelExecutionType

from localkaggle.competitions import Competition, accuracy
from localkaggle.server import LocalKaggle
from localkaggle.services.kernels import Version
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import Scripted, notebook, ran, refused, save

FOR_EVER = 3600.0
SMALL = Competition(
    slug="small",
    title="Small Things",
    training={
        "train.csv": b"id,label\nt,0\n",
        **{f"train/{number:02}.txt": b"x" * number for number in range(22)},
    },
    visible_test={"sample_submission.csv": b"id,label\nseen,0\n", "test/seen.txt": b"visible"},
    hidden_test={
        "sample_submission.csv": b"id,label\nh1,0\nh2,0\n",
        "test/h1.txt": b"hidden",
        "test/h2.txt": b"h",
    },
    solution={"label": {"h1": "1", "h2": "0"}},
    score=accuracy,
    daily_submissions=2,
)


@pytest.fixture
def kaggle(start) -> LocalKaggle:
    """Return a local Kaggle with a small competition. What is pushed stays in the queue."""
    return start(competitions=[SMALL], queue_seconds=FOR_EVER)


@pytest.fixture(scope="module")
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKaggle]:
    """Return a local Kaggle to read a competition's data from."""
    with LocalKaggle(tmp_path_factory.mktemp("hosting"), competitions=[SMALL]) as kaggle:
        yield kaggle


def complete(kaggle: LocalKaggle, client, text: str = "", **fields) -> Version:
    """Push a version and leave it as if it had run to its end, with a submission.csv."""
    fields = {"competition_data_sources": ["small"], **fields}
    quick = KernelExecutionType.QUICK_SAVE
    number = save(
        client, text or notebook("1"), kernel_execution_type=quick, **fields
    ).version_number
    version = kaggle.kernels.version("rehearsal/small-kernel", number)
    version.working.mkdir(parents=True)
    (version.working / "submission.csv").write_text("id,label\nseen,0\n")
    version.status = "COMPLETE"
    return version


def submit(client, version: int | None = 1, name: str = "submission.csv", text: str = "", **fields):
    """Submit a version's output."""
    usual = {
        "competition_name": "small",
        "kernel_owner": "rehearsal",
        "kernel_slug": "small-kernel",
        "kernel_version": version,
        "file_name": name,
        "submission_description": text,
    }
    request = make(types.ApiCreateCodeSubmissionRequest, **{**usual, **fields})
    return client.competitions.competition_api_client.create_code_submission(request)


def ask(client, method: str, **fields):
    """Ask something about the competition, or about a submission."""
    kind = getattr(types, f"Api{method.title().replace('_', '')}Request")
    usual = {"competition_name": "small"} if hasattr(kind, "competition_name") else {}
    request = make(kind, **{**usual, **fields})
    return getattr(client.competitions.competition_api_client, method)(request)


def listed(client) -> list:
    return ask(client, "list_submissions").submissions


def allowed_now(client) -> int:
    return ask(client, "get_submission_limits").num_allowed_now


def nothing_was_spent(kaggle: LocalKaggle, client) -> bool:
    """Return whether all of the day's submissions are left, and nothing was rerun."""
    return (allowed_now(client), [*kaggle.folder.rglob("rerun-*")]) == (SMALL.daily_submissions, [])


# Refusals


@pytest.mark.parametrize(
    "status", ["QUEUED", "RUNNING", "ERROR", "CANCEL_ACKNOWLEDGED", "NEW_SCRIPT"]
)
def test_what_is_not_complete_is_not_submitted(kaggle, client, status):
    """Nor is a version that was only kept."""
    connected = client(kaggle)
    complete(kaggle, connected).status = status

    said = "Your Notebook must complete successfully before it can be submitted"
    with refused(400, exactly=f"Submission not allowed: {said}"):
        submit(connected)

    assert nothing_was_spent(kaggle, connected)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"machine_shape": "TpuV5E8"}, "Your Notebook cannot use TPU in this competition"),
        ({"machine_shape": "TpuV38"}, "Your Notebook cannot use TPU in this competition"),
        ({"enable_tpu": True}, "Your Notebook cannot use TPU in this competition"),
        (
            {"enable_internet": True},
            "Your Notebook cannot use internet access in this competition. "
            "Please disable internet in the Notebook editor and save a new version.",
        ),
        (
            {"competition_data_sources": []},
            "Your Notebook must include this competition as a data source",
        ),
        (
            {"competition_data_sources": ["other"]},
            "Your Notebook must include this competition as a data source",
        ),
    ],
)
def test_what_breaks_a_rule_of_the_competition_is_not_submitted(kaggle, client, fields, said):
    """In Kaggle's words, before anything is rerun."""
    connected = client(kaggle)
    complete(kaggle, connected, **fields)

    with refused(400, exactly=f"Submission not allowed: {said}"):
        submit(connected)

    assert nothing_was_spent(kaggle, connected)


def test_a_tpu_that_was_asked_for_in_vain_counts_as_one(start, client):
    """An account that is not verified got a CPU; the version still says TPU."""
    kaggle = start(competitions=[SMALL], verified=False)
    connected = client(kaggle)
    assert complete(kaggle, connected, machine_shape="TpuV5E8").shape == ""

    with pytest.raises(requests.HTTPError, match="cannot use TPU"):
        submit(connected)

    assert nothing_was_spent(kaggle, connected)


@pytest.mark.parametrize("name", ["answers.csv", "", "Submission.csv", "out/submission.csv"])
def test_another_files_name_is_not_submitted(kaggle, client, name):
    """Even where the output holds such a file."""
    connected = client(kaggle)
    version = complete(kaggle, connected)
    (version.working / "answers.csv").write_text("id,label\n")

    said = 'Submission not allowed: Submission files must be named "submission.csv"'
    with refused(400, exactly=said):
        submit(connected, name=name)

    assert nothing_was_spent(kaggle, connected)


@pytest.mark.parametrize("kind", ["nothing", "a folder", "a link"])
def test_output_without_the_file_is_not_submitted(kaggle, client, kind):
    """A folder or a link of that name is no file."""
    connected = client(kaggle)
    path = complete(kaggle, connected).working / "submission.csv"
    path.unlink()
    if kind == "a folder":
        path.mkdir()
    elif kind == "a link":
        path.symlink_to("/etc/hostname")

    said = "Submission not allowed: Could not find output file submission.csv"
    with refused(400, exactly=said):
        submit(connected)

    assert nothing_was_spent(kaggle, connected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"version": 2}, (404, "Kernel version not found")),
        ({"version": -1}, (404, "Kernel version not found")),
        ({"version": None}, (403, "Permission 'kernelSessions.get' was denied")),
        ({"kernel_slug": "missing"}, (404, "Kernel version not found")),
        ({"kernel_owner": "stranger"}, (404, "Kernel version not found")),
        ({"competition_name": "titanic"}, (404, "Not found")),
        ({"competition_name": "../small"}, (404, "Not found")),
        ({"competition_name": ""}, (404, "Not found")),
    ],
)
def test_what_does_not_exist_is_not_submitted(kaggle, client, fields, expected):
    """Neither the version, nor the kernel, nor the competition; a version has to be named."""
    connected = client(kaggle)
    complete(kaggle, connected)
    kernels = kaggle.kernels.kernels  # somebody else has such a kernel too
    kernels["stranger/small-kernel"] = replace(kernels["rehearsal/small-kernel"], owner="stranger")

    code, said = expected
    with refused(code, exactly=said):
        submit(connected, **fields)

    assert nothing_was_spent(kaggle, connected)


def test_the_version_that_is_named_is_the_one_that_is_judged(kaggle, client):
    """A newer one that would be refused does not matter, and an older good one does not help."""
    connected = client(kaggle)
    complete(kaggle, connected)
    complete(kaggle, connected, enable_internet=True)

    with pytest.raises(requests.HTTPError, match="cannot use internet"):
        submit(connected, 2)
    assert nothing_was_spent(kaggle, connected)

    assert submit(connected, 1).ref == listed(connected)[0].ref


def test_a_file_is_not_submitted(kaggle, client):
    """It can be announced and sent, as on Kaggle; then it is refused, and costs nothing."""
    connected = client(kaggle)
    announced = ask(
        connected, "start_submission_upload", file_name="submission.csv", content_length=3
    )
    assert requests.put(announced.create_url, data=b"id\n", timeout=30).status_code == 200

    said = "Submission not allowed: Small Things only accepts Submissions from Notebooks."
    with refused(400, exactly=said):
        ask(
            connected,
            "create_submission",
            blob_file_tokens=announced.token,
            submission_description="by hand",
        )

    assert nothing_was_spent(kaggle, connected)


# Submissions


def test_a_day_has_only_so_many_submissions(kaggle, client):
    """Those that are still running count; a refused one does not."""
    connected = client(kaggle)
    complete(kaggle, connected)
    counts = [allowed_now(connected)]
    for _ in range(SMALL.daily_submissions):
        submit(connected)
        counts.append(allowed_now(connected))

    said = "Submission not allowed: Your team has used its daily Submission allowance (2) today"
    with refused(400, exactly=said):
        submit(connected)

    assert (counts, len(listed(connected))) == ([2, 1, 0], 2)
    assert ask(connected, "get_submission_limits").num_today == 2


def test_submissions_are_listed_newest_first_with_what_was_said_of_them(kaggle, client):
    """The description is how one finds one's own again."""
    connected = client(kaggle)
    complete(kaggle, connected)

    answers = [submit(connected, text=text) for text in ("run_id=r1 é", "")]

    assert {answer.message for answer in answers} == {"Successfully submitted to Small Things"}
    first, second = (answer.ref for answer in answers)
    assert [(item.ref, item.description) for item in listed(connected)] == [
        (second, ""),
        (first, "run_id=r1 é"),
    ]
    item = ask(connected, "get_submission", ref=first)
    assert (item.description, item.submitted_by, item.file_name) == (
        "run_id=r1 é",
        "rehearsal",
        "submission.csv",
    )
    assert (item.status.name, item.public_score, item.error_description) == ("PENDING", "", "")


@pytest.mark.parametrize("ref", [0, 1, 49_999_999])
def test_a_submission_that_nobody_made_is_not_found(hosting, client, ref):
    """404."""
    with refused(404):
        ask(client(hosting), "get_submission", ref=ref)


def test_submissions_of_one_competition_do_not_count_in_another(start, client):
    """Each has its own list and its own limit."""
    other = Competition(
        "other", "Other", {}, SMALL.visible_test, SMALL.hidden_test, SMALL.solution, accuracy
    )
    kaggle = start(competitions=[SMALL, other], queue_seconds=FOR_EVER)
    connected = client(kaggle)
    complete(kaggle, connected)
    submit(connected)

    assert (len(listed(connected)), allowed_now(connected)) == (1, SMALL.daily_submissions - 1)
    assert ask(connected, "list_submissions", competition_name="other").submissions == []
    assert ask(connected, "get_submission_limits", competition_name="other").num_allowed_now == 5


def test_of_a_rerun_only_the_score_is_seen(start, client):
    """Not its log, nor its output, nor the hidden test set: they are where the first run's were."""

    def act(session: Scripted) -> None:
        folder, kind = session.inputs["competitions/small"], "re" if session.rerun else "first "
        shutil.copy(folder / "sample_submission.csv", session.working / "submission.csv")
        test = [path.name for path in (folder / "test").iterdir()]
        session.log.add("stdout", f"{kind}run {test}\n")

    kaggle = start(competitions=[SMALL], session=partial(Scripted, act))
    connected = client(kaggle)
    version = ran(kaggle, connected, "1", competition_data_sources=["small"])
    assert version.status == "COMPLETE"

    def shown() -> tuple[str, list[str], str]:
        request = kernel_types.ApiListKernelSessionOutputRequest()
        request.user_name, request.kernel_slug, request.version_label = (
            "rehearsal",
            "small-kernel",
            "v1",
        )
        answer = connected.kernels.kernels_api_client.list_kernel_session_output(request)
        followed = requests.get(
            "http://localhost/api/v1/kernels/logs/stream/rehearsal/small-kernel",
            auth=("rehearsal", kaggle.key),
            timeout=30,
        )
        return (
            answer.log,
            [requests.get(file.url, timeout=30).text for file in answer.files],
            followed.text,
        )

    before = shown()
    ref = submit(connected).ref
    kaggle.submissions.submissions[ref].thread.join(60)

    item = ask(connected, "get_submission", ref=ref)
    assert (item.status.name, item.public_score, item.error_description) == (
        "COMPLETE",
        "0.50000",
        "",
    )
    assert "first run ['seen.txt']" in before[0] and "id,label\nseen,0\n" in before[1]
    assert shown() == before
    assert (
        (kaggle.folder / "sessions" / f"rerun-{ref}" / "working" / "submission.csv")
        .read_text()
        .startswith("id,label\nh1")
    )


def test_a_rerun_that_fails_has_kaggles_name_for_it_and_no_score(start, client):
    """Two ways at once; both are spent."""

    def act(session: Scripted) -> None:
        if "broken" in session.notebook:
            raise ValueError("the hidden image is broken")

    kaggle = start(competitions=[SMALL], queue_seconds=FOR_EVER, session=partial(Scripted, act))
    connected = client(kaggle)
    complete(kaggle, connected, notebook("'broken'"))
    complete(kaggle, connected, notebook("'wrote nothing'"))
    refs = [submit(connected, number).ref for number in (1, 2)]
    for ref in refs:
        kaggle.submissions.submissions[ref].thread.join(60)

    items = [ask(connected, "get_submission", ref=ref) for ref in refs]

    assert [(item.status.name, item.public_score) for item in items] == [("ERROR", "")] * 2
    assert [item.error_description for item in items] == [
        "Notebook Threw Exception",
        "Submission CSV Not Found",
    ]
    assert allowed_now(connected) == 0


# Data


def test_data_files_are_listed_in_pages_with_their_sizes(hosting, client):
    """Those that everybody sees, and none of the hidden ones."""
    connected = client(hosting)

    first = ask(connected, "list_data_files")
    second = ask(connected, "list_data_files", page_token=first.next_page_token)
    whole = ask(connected, "list_data_files", page_size=1000)

    assert [len(answer.files) for answer in (first, second, whole)] == [20, 5, 25]
    assert (second.next_page_token, whole.next_page_token) == ("", "")
    sizes = {file.name: file.total_bytes for file in [*first.files, *second.files]}
    assert sizes == {file.name: file.total_bytes for file in whole.files}
    assert sizes == {
        name: len(content) for name, content in {**SMALL.training, **SMALL.visible_test}.items()
    }


def test_a_data_file_can_be_downloaded(hosting, client):
    """Alone, by a redirect; the sample is the visible one."""
    answer = ask(client(hosting), "download_data_file", file_name="sample_submission.csv")

    assert ([hop.status_code for hop in answer.history], answer.text) == (
        [302],
        "id,label\nseen,0\n",
    )


def test_all_data_can_be_downloaded_as_a_zip(hosting, client):
    """With its folders, unchanged."""
    answer = ask(client(hosting), "download_data_files")

    with zipfile.ZipFile(io.BytesIO(answer.content)) as file:
        assert {name: file.read(name) for name in file.namelist()} == {
            **SMALL.training,
            **SMALL.visible_test,
        }


@pytest.mark.parametrize(
    "name",
    [
        "missing.csv",
        "",
        ".",
        "train",
        "../hidden/sample_submission.csv",
        "train/../../hidden/test/h1.txt",
        "../../../home",
        "/etc/hostname",
        "//etc/hostname",
        "test/h1.txt",
        "train.csv\0",
    ],
)
def test_nothing_but_visible_files_can_be_downloaded(hosting, client, name):
    """Neither a folder, nor the hidden test set, nor a file of this machine."""
    assert (hosting.folder / "competitions" / "small" / "hidden" / "test" / "h1.txt").is_file()

    with refused(404):
        ask(client(hosting), "download_data_file", file_name=name)


@pytest.mark.parametrize(
    "method",
    [
        "list_data_files",
        "download_data_file",
        "download_data_files",
        "list_submissions",
        "get_submission_limits",
    ],
)
@pytest.mark.parametrize("name", ["titanic", "../small", ""])
def test_a_competition_that_is_not_hosted_is_not_found(hosting, client, method, name):
    """Nor can its name be a path."""
    with refused(404, "Not found"):
        ask(client(hosting), method, competition_name=name)


def test_the_labels_of_the_hidden_test_set_are_nowhere_on_the_disk(hosting):
    """Only the server's memory has them."""
    folder = hosting.folder / "competitions" / "small"
    written = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }

    assert "hidden/test/h1.txt" in written
    assert not [name for name, content in written.items() if b"h1,1" in content]
