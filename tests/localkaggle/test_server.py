"""Server: what the HTTP handler and the kernels service answer Kaggle's client and others."""

import base64
import http.client
import json
import os
import resource
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import kagglesdk.kernels.types.kernels_api_service as types
import pytest
import requests
from kagglesdk.kernels.types.kernels_enums import KernelExecutionType, KernelWorkerStatus
from kagglesdk.security.types.oauth_service import IntrospectTokenRequest

from localkaggle import http_handler
from localkaggle.competitions import Competition
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.services.kernels import SOURCE_BYTES
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import (
    Scripted,
    finished,
    notebook,
    ran,
    refused,
    save,
    signed_in,
)

STATUS = "kernels.KernelsApiService/GetKernelSessionStatus"
FOR_EVER = 3600.0
# Ends when the test makes the file `go` in its output's folder.
GATED = """
import pathlib, time
print("before")
while not pathlib.Path("go").exists():
    time.sleep(0.02)
print("after")
"""


@pytest.fixture
def small() -> Competition:
    """Return a competition of one file."""
    files = {"sample_submission.csv": b"id,label\n"}
    return Competition("small", "Small", {}, files, files, {}, score=lambda given, solution: 1.0)


@pytest.fixture
def kaggle(start) -> LocalKaggle:
    """Return a local Kaggle whose pushes stay queued: nothing runs unless a test says so."""
    return start(competitions=(), queue_seconds=FOR_EVER)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKaggle]:
    """Return a local Kaggle to ask, with one complete version, on a GPU, that left 24 files beside
    its notebook.

    Somebody else has a kernel there too; no call can make one for another account.
    """
    with LocalKaggle(tmp_path_factory.mktemp("ended"), competitions=(), queue_seconds=0) as kaggle:
        with signed_in(kaggle.environment) as pushing:
            cell = """
import os, pathlib
pathlib.Path("deep").mkdir()
for number in range(24):
    pathlib.Path(f"deep/{number:02}.txt").write_text(f"number {number}")
os.symlink("/etc/hostname", "a-link")
print("it ran")
"""
            assert ran(kaggle, pushing, cell, machine_shape="NvidiaTeslaT4").status == "COMPLETE"
        kaggle.kernels.kernels["stranger/small-kernel"] = replace(
            kaggle.kernels.kernels["rehearsal/small-kernel"], owner="stranger"
        )
        yield kaggle


def raw(kaggle: LocalKaggle, path: str, *, method: str = "POST", **options) -> requests.Response:
    """Ask without Kaggle's client, the environment's proxies, or a proxy at all."""
    with requests.Session() as session:
        session.trust_env = False
        options = {"auth": ("rehearsal", kaggle.key), "timeout": 30, **options}
        return session.request(method, f"http://127.0.0.1:{kaggle.port}{path}", **options)


def kept(client, **fields):
    """Push a version that is only kept, not run."""
    return save(
        client, notebook("1"), kernel_execution_type=KernelExecutionType.QUICK_SAVE, **fields
    )


def asked(cls, slug: str = "small-kernel", label: str | None = None, owner: str = "rehearsal"):
    """Return a request about a kernel, or about one version of it."""
    labelled = {} if label is None else {"version_label": label}
    return make(cls, user_name=owner, kernel_slug=slug, **labelled)


def status(client, **words):
    return client.kernels.kernels_api_client.get_kernel_session_status(
        asked(types.ApiGetKernelSessionStatusRequest, **words)
    )


def output(client, size: int | None = None, token: str | None = None, **words):
    request = asked(types.ApiListKernelSessionOutputRequest, **words)
    request.page_size, request.page_token = size, token
    return client.kernels.kernels_api_client.list_kernel_session_output(request)


def download(client, path: str, number: int = 1, slug: str = "small-kernel"):
    request = make(
        types.ApiDownloadKernelOutputRequest,
        owner_slug="rehearsal",
        kernel_slug=slug,
        file_path=path,
        version_number=number,
    )
    return client.kernels.kernels_api_client.download_kernel_output(request)


# A run


def test_a_version_is_queued_then_runs_then_is_complete(start, client, monkeypatch):
    """No word is skipped; while it runs its log can be read, and its output cannot."""
    kaggle, leave = start(competitions=()), threading.Event()
    monkeypatch.setattr(kaggle.kernels._closing, "wait", lambda seconds: not leave.wait(300))
    connected = client(kaggle)
    save(connected, notebook(GATED))
    version = kaggle.kernels.version("rehearsal/small-kernel", 1)

    seen = [status(connected).status]
    leave.set()
    while "before" not in output(connected).log:
        assert not version.done.wait(0.02)
    seen.append(status(connected).status)
    assert output(connected).files == [] and "after" not in output(connected).log
    (version.working / "go").touch()
    finished(kaggle)
    seen.append(status(connected).status)

    assert [word.name for word in seen] == ["QUEUED", "RUNNING", "COMPLETE"]
    assert "go" in [file.file_name for file in output(connected).files]
    printed = [
        piece["data"]
        for piece in json.loads(output(connected).log)
        if piece["stream_name"] == "stdout"
    ]
    assert "".join(printed).split() == ["before", "after"]


def test_a_log_can_be_followed_while_the_run_goes(start, client):
    """As server-sent events, from the first line on, until Kaggle's word for the end."""
    go = threading.Event()

    def act(session: Scripted) -> None:
        session.log.add("stdout", "before\n")
        assert go.wait(300)
        session.log.add("stdout", "after\n")

    kaggle = start(competitions=(), session=partial(Scripted, act))
    save(client(kaggle), notebook("1"))
    version = kaggle.kernels.version("rehearsal/small-kernel", 1)

    path = "/v1/kernels/logs/stream/rehearsal/small-kernel"
    answer = raw(kaggle, path, method="GET", params={"versionLabel": "v1"}, stream=True)
    lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
    events = (line.removeprefix("data: ") for line in lines if line)
    try:
        first = next(json.loads(event) for event in events if "before" in event)
        still_running = not version.done.is_set()
    finally:
        go.set()
    rest = list(events)

    assert answer.headers["Content-Type"] == "text/event-stream"
    assert (first["stream_name"], first["data"], still_running) == ("stdout", "before\n", True)
    assert any("after" in event for event in rest) and rest[-1] == "END_OF_LOG"


def test_a_run_that_throws_is_an_error_and_says_so(start, client):
    """The reason is in the status, what it threw in the log; what it wrote before is there."""

    def act(session: Scripted) -> None:
        (session.working / "early.txt").write_text("x")
        raise RuntimeError("of my own")

    kaggle = start(competitions=(), session=partial(Scripted, act))
    connected = client(kaggle)

    ran(kaggle, connected, "1")

    answer, listed = status(connected), output(connected)
    assert (
        answer.status == KernelWorkerStatus.ERROR and "threw an exception" in answer.failure_message
    )
    assert "of my own" in listed.log
    assert [file.file_name for file in listed.files] == ["early.txt"]


# Versions, slugs, titles


def test_each_push_of_a_slug_makes_the_next_version(kaggle, client):
    """The kernel stays the same one."""
    connected = client(kaggle)

    pushed = [kept(connected) for _ in range(3)]

    assert [answer.version_number for answer in pushed] == [1, 2, 3]
    assert len({answer.kernel_id for answer in pushed}) == len(kaggle.kernels.kernels) == 1
    assert {answer.ref for answer in pushed} == {"/code/rehearsal/small-kernel"}


@pytest.mark.parametrize(
    ("label", "name"), [("v1", "NEW_SCRIPT"), ("v2", "QUEUED"), (None, "QUEUED")]
)
def test_a_label_names_a_version_and_no_label_the_newest(kaggle, client, label, name):
    """kaggle 2.2.4 sends none, whatever it was asked."""
    connected = client(kaggle)
    kept(connected)
    save(connected, notebook("1"))

    assert status(connected, label=label).status == KernelWorkerStatus[name]


@pytest.mark.parametrize(
    "label", ["v2", "v0", "v", "1", "V1", "v-1", "v1.0", "latest", "v1/../v1", "v 1"]
)
def test_an_unknown_or_malformed_label_is_no_version(ended, client, label):
    """It is never taken for the newest one."""
    connected = client(ended)

    for ask in (status, output):
        with refused(404, "Not found"):
            ask(connected, label=label)


def test_a_new_kernel_gets_its_address_from_its_title(kaggle, client):
    """Whatever slug was asked for; that one is then missing."""
    connected = client(kaggle)

    answer = kept(connected, slug="as-asked", new_title="What It Is Called")

    assert answer.ref == "/code/rehearsal/what-it-is-called"
    assert status(connected, slug="what-it-is-called").status == KernelWorkerStatus.NEW_SCRIPT
    with refused(404):
        status(connected, slug="as-asked")


def test_an_old_kernel_keeps_its_address_under_a_new_title(kaggle, client):
    """The slug is what names it."""
    connected = client(kaggle)
    kept(connected)

    answer = kept(connected, new_title="What It Is Called")

    assert (answer.ref, answer.version_number) == ("/code/rehearsal/small-kernel", 2)


def test_a_title_that_another_kernel_has_makes_a_version_of_that_one(kaggle, client):
    """Two kernels never share an address."""
    connected = client(kaggle)
    kept(connected)

    answer = kept(connected, slug="other-kernel", new_title="Small kernel!")

    assert (answer.ref, answer.version_number) == ("/code/rehearsal/small-kernel", 2)
    assert list(kaggle.kernels.kernels) == ["rehearsal/small-kernel"]


@pytest.mark.parametrize(
    "fields",
    [
        {"new_title": "four"},
        {"new_title": "x" * 51},
        {"new_title": "!!!!! !!!!!"},
        {"slug": "../../escape"},
        {"slug": "Upper-Case"},
        {"slug": "under_score"},
        {"slug": "x"},
        {"slug": "x" * 101},
        {"slug": ""},
    ],
)
def test_a_title_or_slug_that_makes_no_address_is_refused(kaggle, client, fields):
    """400, and no kernel comes of it."""
    with refused(400, r"title|slug"):
        kept(client(kaggle), **{"new_title": "A Good Title", **fields})
    assert kaggle.kernels.kernels == {} and not (kaggle.folder / "sessions").exists()


def test_nobody_pushes_for_somebody_else(kaggle, client):
    """Kaggle says it inside a success."""
    connected = client(kaggle)
    fields = {"slug": "stranger/small-kernel", "new_title": "Small Kernel", "text": notebook("1")}
    request = make(types.ApiSaveKernelRequest, **fields)

    assert connected.kernels.kernels_api_client.save_kernel(request).error == "Kernel not found"
    assert kaggle.kernels.kernels == {}


@pytest.mark.parametrize(
    ("owner", "slug"), [("rehearsal", "missing"), ("stranger", "small-kernel"), ("", "")]
)
@pytest.mark.parametrize(
    "method", ["get_kernel_session_status", "list_kernel_session_output", "list_kernel_files"]
)
def test_a_missing_kernel_and_somebody_elses_look_the_same(
    ended, client, monkeypatch, owner, slug, method
):
    """403, as Kaggle says it, where its owner too is told nothing."""
    monkeypatch.setattr(ended.kernels, "_facts", Facts(missing="403"))
    connected = client(ended)
    cls = {
        "get_kernel_session_status": types.ApiGetKernelSessionStatusRequest,
        "list_kernel_session_output": types.ApiListKernelSessionOutputRequest,
        "list_kernel_files": types.ApiListKernelFilesRequest,
    }[method]

    with refused(403, r"Permission 'kernels\.get' was denied"):
        getattr(connected.kernels.kernels_api_client, method)(asked(cls, slug=slug, owner=owner))


def test_a_kernel_gives_back_what_was_pushed(start, client, small):
    """Source, settings and sources of its newest version."""
    connected = client(start(competitions=[small], queue_seconds=FOR_EVER))
    text = notebook("print('é')")
    save(connected, text, machine_shape="NvidiaTeslaT4", competition_data_sources=["small"])

    answer = connected.kernels.kernels_api_client.get_kernel(asked(types.ApiGetKernelRequest))

    assert answer.blob.source == text
    assert (answer.metadata.ref, answer.metadata.title) == (
        "rehearsal/small-kernel",
        "Small Kernel",
    )
    assert (answer.metadata.machine_shape, answer.metadata.competition_data_sources) == (
        "NvidiaTeslaT4",
        ["small"],
    )
    assert answer.metadata.is_private is True and answer.metadata.enable_internet is False


# What a push is told


def test_sources_that_do_not_exist_are_reported_and_the_push_goes_on(start, client, small):
    """Kaggle mounts the others; its own client only prints the names."""
    connected = client(start(competitions=[small], queue_seconds=FOR_EVER))

    answer = save(
        connected,
        notebook("1"),
        competition_data_sources=["small", "titanic"],
        dataset_data_sources=["rehearsal/no-data"],
        kernel_data_sources=["rehearsal/small-kernel"],
        model_data_sources=["google/gemma/keras/2b/1"],
    )

    assert (answer.invalid_competition_sources, answer.invalid_dataset_sources) == (
        ["titanic"],
        ["rehearsal/no-data"],
    )
    assert answer.invalid_kernel_sources == ["rehearsal/small-kernel"]
    assert answer.invalid_model_sources == ["google/gemma/keras/2b/1"]
    assert (answer.error, answer.version_number) == ("", 1)


def test_a_source_is_smaller_than_a_megabyte(kaggle, client):
    """Counted in bytes, not in letters."""
    connected = client(kaggle)
    quick = {"kernel_type": "script", "kernel_execution_type": KernelExecutionType.QUICK_SAVE}

    assert save(connected, "é" * (SOURCE_BYTES // 2 - 1) + "e", **quick).version_number == 1
    with refused(400, "must be less than 1 megabytes"):
        save(connected, "é" * (SOURCE_BYTES // 2), **quick)
    assert len(kaggle.kernels.kernels["rehearsal/small-kernel"].versions) == 1


@pytest.mark.parametrize(
    ("shape", "most", "other"), [("TpuV5E8", 1, ""), ("NvidiaTeslaT4", 2, ""), ("", 5, "TpuV5E8")]
)
def test_only_so_many_sessions_go_at_once(kaggle, client, shape, most, other):
    """Of each machine; a refusal comes inside a success, and makes no version."""
    connected = client(kaggle)
    for _ in range(most):
        assert not save(connected, notebook("1"), machine_shape=shape).error

    refused = save(connected, notebook("1"), slug="another-one", machine_shape=shape)

    kind = {"T": "TPU", "N": "GPU", "": "CPU"}[shape[:1]]
    assert refused.error == f"Maximum batch {kind} session count of {most} reached."
    assert list(kaggle.kernels.kernels) == ["rehearsal/small-kernel"]
    assert not save(connected, notebook("1"), machine_shape=other).error
    assert not kept(connected, machine_shape=shape).error


@pytest.mark.parametrize(
    ("kind", "shape", "hours"), [("TPU", "TpuV5E8", 20), ("GPU", "NvidiaTeslaT4", 30)]
)
def test_a_week_has_only_so_many_hours(kaggle, client, kind, shape, hours):
    """A CPU has no quota."""
    connected = client(kaggle)
    kaggle.kernels.used_seconds[kind] = hours * 3600.0

    assert save(connected, notebook("1"), machine_shape=shape).error == (
        f"Maximum weekly {kind} quota of {hours}.00 hours reached."
    )
    assert not save(connected, notebook("1")).error


def test_what_runs_uses_up_the_week(ended, client):
    """Of its own machine alone."""
    quota = client(ended).kernels.kernels_api_client.get_accelerator_quota_statistics()

    took = ended.kernels.version("rehearsal/small-kernel", 1).seconds
    assert quota.gpu_quota.time_used.total_seconds() == round(took) > 0
    assert quota.tpu_quota.time_used.total_seconds() == 0
    assert quota.tpu_quota.total_time_allowed.total_seconds() == 20 * 3600
    assert quota.gpu_quota.total_time_allowed.total_seconds() == 30 * 3600


def test_an_unverified_account_gets_a_cpu_in_silence(start, client):
    """Nothing in the answer says so; a GPU is given."""
    kaggle = start(competitions=(), queue_seconds=FOR_EVER, verified=False)
    connected = client(kaggle)

    tpu = save(connected, notebook("1"), machine_shape="TpuV5E8")
    gpu = save(connected, notebook("1"), machine_shape="NvidiaTeslaT4")

    assert (tpu.error, tpu.version_number, gpu.error) == ("", 1, "")
    given = [version.shape for version in kaggle.kernels.kernels["rehearsal/small-kernel"].versions]
    assert given == ["", "NvidiaTeslaT4"]
    assert kaggle.kernels.version("rehearsal/small-kernel", 1).request.machine_shape == "TpuV5E8"


@pytest.mark.parametrize(
    ("metadata", "fields", "given"),
    [
        ({}, {"machine_shape": "TpuV5E8"}, "TpuV5E8"),
        ({}, {"enable_tpu": True}, "TpuV5E8"),
        ({}, {"enable_gpu": True}, "NvidiaTeslaT4"),
        ({}, {"machine_shape": "NvidiaTeslaP100"}, "NvidiaTeslaT4"),
        ({}, {"machine_shape": "TpuV38"}, "TpuV5E8"),
        ({}, {"machine_shape": "TpuV232"}, ""),
        ({}, {"machine_shape": "None"}, ""),
        (
            {},
            {"machine_shape": "TpuV5E8", "docker_image": "gcr.io/kaggle-images/python@sha256:0"},
            "",
        ),
        ({"kaggle": {"dockerImageVersionId": 30000}}, {"machine_shape": "TpuV5E8"}, ""),
        ({"kaggle": {"accelerator": "none"}}, {"machine_shape": "TpuV5E8"}, ""),
        ({"kaggle": {"accelerator": "none"}}, {"machine_shape": "NvidiaTeslaT4"}, "NvidiaTeslaT4"),
    ],
)
def test_a_push_gets_the_machine_that_kaggle_would_give(kaggle, client, metadata, fields, given):
    """Retired shapes become others, and whoever pins an image gets no TPU."""
    quick = {"kernel_execution_type": KernelExecutionType.QUICK_SAVE}

    assert not save(client(kaggle), notebook("1", **metadata), **quick, **fields).error

    assert kaggle.kernels.version("rehearsal/small-kernel", 1).shape == given


def test_an_unknown_machine_is_refused(kaggle, client):
    """It is not taken for a CPU."""
    with refused(400, "Invalid machine shape: TpuV9"):
        save(client(kaggle), notebook("1"), machine_shape="TpuV9")

    assert kaggle.kernels.kernels == {}


# Output


@pytest.mark.parametrize(
    ("size", "pages"), [(None, [20, 5]), (10, [10, 10, 5]), (25, [25]), (1000, [25])]
)
def test_output_is_listed_in_pages(ended, client, size, pages):
    """Each file once; a link is no file."""
    connected, found, token, lengths = client(ended), [], None, []
    while token != "":
        answer = output(connected, size=size, token=token)
        found += [file.file_name for file in answer.files]
        lengths.append(len(answer.files))
        token = answer.next_page_token

    assert lengths == pages
    assert found == ["__notebook__.ipynb", *(f"deep/{number:02}.txt" for number in range(24))]


def test_the_same_output_is_listed_with_sizes(ended, client):
    """As kagglehub asks for it."""
    request = asked(types.ApiListKernelFilesRequest)
    request.page_size, request.page_token = 2, "1"

    answer = client(ended).kernels.kernels_api_client.list_kernel_files(request)

    assert [(item.name, item.size) for item in answer.files] == [
        ("deep/00.txt", 8),
        ("deep/01.txt", 8),
    ]
    assert int(answer.next_page_token) == 3


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "../1"])
def test_a_page_that_nobody_gave_out_is_refused(ended, client, token):
    """400, instead of the first page once more."""
    with refused(400, "Invalid page token"):
        output(client(ended), token=token)


def test_a_listed_file_can_be_fetched_whole_or_from_some_place_on(ended, client):
    """Its address needs no credentials."""
    file = output(client(ended)).files[1]

    whole = requests.get(file.url, timeout=30)
    rest = requests.get(file.url, headers={"Range": "bytes=7-"}, timeout=30)
    beyond = requests.get(file.url, headers={"Range": "bytes=9-"}, timeout=30)

    assert (whole.status_code, whole.content) == (200, b"number 0")
    assert (rest.status_code, rest.content, rest.headers["Content-Range"]) == (
        206,
        b"0",
        "bytes 7-7/8",
    )
    assert whole.headers["ETag"] == rest.headers["ETag"]
    assert beyond.status_code == 416


def test_one_file_of_the_output_is_a_redirect(ended, client):
    """To an address that is signed."""
    answer = download(client(ended), "deep/03.txt")

    assert answer.content == b"number 3"
    assert [hop.status_code for hop in answer.history] == [302] and "X-Goog-Signature" in answer.url


@pytest.mark.parametrize(
    "path",
    ["missing", "deep", "", "../beside.txt", "deep/../deep/03.txt", "/etc/hostname", "a-link"],
)
def test_nothing_but_output_files_can_be_downloaded(ended, client, path):
    """Neither folders, nor links, nor what lies beside the output."""
    (ended.kernels.version("rehearsal/small-kernel", 1).folder / "beside.txt").touch()

    with refused(404):
        download(client(ended), path)


@pytest.mark.parametrize(
    "path", ["/storage/99999/x", "/storage/../journal/x", "/storage/", "/upload/1"]
)
def test_an_address_that_was_not_given_out_leads_nowhere(ended, path):
    """Keys are not names of files."""
    assert raw(ended, path, method="GET").status_code == 404


def test_the_log_of_an_ended_run_is_json(ended, client):
    """The same that the output's listing gives; a label may name the version."""
    path = "/api/v1/kernels/logs/stream/rehearsal/small-kernel"
    unlabelled, labelled = (
        raw(ended, path, method="GET", params=params) for params in ({}, {"versionLabel": "v1"})
    )

    assert unlabelled.headers["Content-Type"] == "application/json"
    assert unlabelled.text == labelled.text == output(client(ended)).log
    assert "it ran\n" in [piece["data"] for piece in unlabelled.json()]


@pytest.mark.parametrize(
    ("handle", "label", "auth", "expected"),
    [
        ("rehearsal/small-kernel", "v1", None, 401),
        ("rehearsal/small-kernel", "v1", ("rehearsal", "wrong"), 401),
        ("rehearsal/missing", "", (), 404),
        ("nobody/small-kernel", "v1", (), 403),
        ("rehearsal/small-kernel", "v2", (), 404),
        ("rehearsal/small-kernel", "1", (), 404),
    ],
)
def test_no_log_without_credentials_or_version(ended, handle, label, auth, expected):
    """A stream is refused like any call."""
    auth = ("rehearsal", ended.key) if auth == () else auth
    path = f"/v1/kernels/logs/stream/{handle}"

    assert (
        raw(ended, path, method="GET", params={"versionLabel": label}, auth=auth).status_code
        == expected
    )


# HTTP


def test_a_wrong_key_is_refused(kaggle, client):
    """401, before anything is looked at."""
    with refused(401, "Unauthorized"):
        save(client(kaggle, key="0" * 32), notebook("1"))

    assert kaggle.kernels.kernels == {}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic not-base-64!",
        "Basic " + base64.b64encode(b"rehearsal:").decode(),
        "Basic " + base64.b64encode(b"rehearsal").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        "Bearer ",
        "Bearer KGAT_0",
        "Digest x",
    ],
)
def test_no_header_but_the_right_one_opens(ended, header):
    """Nor does a broken one break the server."""
    headers = {} if header is None else {"Authorization": header}

    assert raw(ended, f"/api/v1/{STATUS}", auth=None, json={}, headers=headers).status_code == 401


@pytest.mark.parametrize("kind", ["key", "token"])
def test_a_key_and_a_token_open(ended, kind):
    """The call itself is then refused: there is no such kernel."""
    key = base64.b64encode(f"rehearsal:{ended.key}".encode()).decode()
    header = f"Basic {key}" if kind == "key" else f"Bearer {ended.token}"

    assert (
        raw(
            ended, f"/v1/{STATUS}", auth=None, json={}, headers={"Authorization": header}
        ).status_code
        == 403
    )


def test_the_journal_never_holds_a_credential(kaggle, client):
    """Neither a good one nor one that was refused, nor one that somebody asks about."""
    connected, wrong = client(kaggle), "f" * 32
    kept(connected)
    status(connected)
    request = IntrospectTokenRequest()
    request.token = kaggle.token
    assert connected.security.oauth_client.introspect_token(request).active
    for key in (kaggle.key, wrong):
        raw(kaggle, f"/v1/{STATUS}", auth=("rehearsal", key), json={})
        raw(
            kaggle,
            f"/v1/{STATUS}",
            auth=None,
            json={},
            headers={"Authorization": f"Bearer {kaggle.token}"},
        )
        raw(kaggle, "/v1/security.OAuthService/IntrospectToken", json={"token": wrong})

    noted = json.dumps(kaggle.journal)

    assert [line[0] for line in kaggle.journal][:3] == [
        "SaveKernel",
        "GetKernelSessionStatus",
        "IntrospectToken",
    ]
    assert [line[2] for line in kaggle.journal].count(401) == 1
    for secret in (kaggle.key, wrong, kaggle.token):
        encoded = base64.b64encode(f"rehearsal:{secret}".encode()).decode()
        assert secret not in noted and encoded not in noted


def test_the_journal_tells_what_was_asked_and_answered(kaggle, client):
    """Refusals too, in order."""
    connected = client(kaggle)
    kept(connected)
    with pytest.raises(requests.HTTPError):
        status(connected, label="v9")

    (order, asked_for, taken, answered), (question, _, refused, reason) = kaggle.journal

    assert (order, asked_for["slug"], taken) == ("SaveKernel", "rehearsal/small-kernel", 200)
    assert answered["versionNumber"] == 1
    assert (question, refused, reason) == ("GetKernelSessionStatus", 404, "Not found")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/kernels.KernelsApiService/NoSuchMethod",
        "/api/v1/kernels.KernelsApiService/CancelKernelSession",
        "/api/v1/kernels.KernelsApiService/close",
        "/api/v1/kernels.KernelsApiService/version",
        "/api/v1/kernels.KernelsApiService/GetDataset",
        "/api/v1/models.ModelApiService/ListKernels",
        "/api/v1/nothing.AtAll/GetKernel",
        "/api/v2/kernels.KernelsApiService/GetKernel",
        "/api/v1/kernels.KernelsApiService",
        "/",
    ],
)
def test_what_is_not_served_is_not_found(ended, path):
    """In Kaggle's JSON, and with good credentials; the server's own methods are no calls."""
    answer = raw(ended, path, json={})

    assert answer.status_code == 404
    assert answer.json()["code"] == 404 and answer.json()["message"]


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
def test_a_call_is_a_post(ended, method):
    """Anything else leads to no method."""
    calls = len(ended.journal)

    assert raw(ended, f"/api/v1/{STATUS}", method=method).status_code == 404
    assert len(ended.journal) == calls


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b'{"userName": "rehearsal", "colour": "red"}', "colour"),
        (b'{"user_name": "rehearsal"}', "user_name"),
        (b"not json", "Malformed"),
        (b"[]", "Malformed"),
        (b'"text"', "Malformed"),
        (b"\xff", "Malformed"),
    ],
)
def test_a_request_that_kaggle_would_not_understand_is_refused(ended, body, match):
    """An unknown field is an error of the caller, not one to overlook."""
    answer = raw(ended, f"/api/v1/{STATUS}", data=body)

    assert answer.status_code == 400 and match in answer.json()["message"]


def test_an_unknown_word_of_an_enumeration_is_refused(kaggle):
    """It is not taken for the first word."""
    body = {"slug": "rehearsal/small-kernel", "kernelExecutionType": "LATER"}

    assert raw(kaggle, "/api/v1/kernels.KernelsApiService/SaveKernel", json=body).status_code == 400
    assert kaggle.kernels.kernels == {}


def test_a_body_may_come_in_chunks(kaggle):
    """Some clients do not know its length, and go on on the same connection."""
    whole = json.dumps(
        {
            "slug": "rehearsal/small-kernel",
            "newTitle": "Small Kernel",
            "kernelExecutionType": "QUICK_SAVE",
        }
    )
    with requests.Session() as session:
        session.trust_env, session.auth = False, ("rehearsal", kaggle.key)
        address = f"http://127.0.0.1:{kaggle.port}/api/v1/kernels.KernelsApiService/SaveKernel"
        made = [
            session.post(
                address, data=iter([whole[:9].encode(), whole[9:].encode()]), timeout=30
            ).json()["versionNumber"]
            for _ in range(2)
        ]

    assert made == [1, 2]


@pytest.mark.parametrize(
    "host",
    ["www.kaggle.com", "api.kaggle.com:80", "localhost.example.org", "10.0.0.1", "127.0.0.2"],
)
def test_a_proxy_for_no_other_host(ended, host):
    """What a client sends elsewhere ends here, and is told where it wanted to go."""
    calls = len(ended.journal)
    connection = http.client.HTTPConnection("127.0.0.1", ended.port, timeout=30)
    connection.request("POST", f"http://{host}/api/v1/{STATUS}", body=b"{}")
    answer = connection.getresponse()

    message = json.loads(answer.read())["message"]
    connection.close()

    assert answer.status == 403 and host.split(":")[0] in message
    assert len(ended.journal) == calls


def test_no_tunnel_is_opened(ended):
    """What is encrypted could go anywhere."""
    connection = http.client.HTTPConnection("127.0.0.1", ended.port, timeout=30)
    connection.request("CONNECT", "www.kaggle.com:443")

    assert connection.getresponse().status == 501
    connection.close()


def test_an_answers_addresses_are_those_of_the_way_it_was_asked(ended, client):
    """Through the proxy they name localhost; without it, this server."""
    through = output(client(ended)).files[1].url
    body = {"userName": "rehearsal", "kernelSlug": "small-kernel"}
    direct = raw(
        ended, "/api/v1/kernels.KernelsApiService/ListKernelSessionOutput", json=body
    ).json()["files"][1]["url"]

    assert through.startswith("http://localhost/storage/")
    assert direct.startswith(f"http://127.0.0.1:{ended.port}/storage/")
    assert (
        raw(ended, direct.split(str(ended.port))[1], method="GET", auth=None).content == b"number 0"
    )


# The server


def test_the_environment_holds_credentials_of_this_kaggle_alone(kaggle):
    """Its home is private and has no credentials; nothing of the developer's is passed on."""
    environment = kaggle.environment

    assert (environment["KAGGLE_USERNAME"], environment["KAGGLE_KEY"]) == ("rehearsal", kaggle.key)
    assert "KAGGLE_API_TOKEN" not in environment
    for name in ("HOME", "KAGGLE_CONFIG_DIR", "TMPDIR"):
        assert Path(environment[name]).is_relative_to(kaggle.folder)
        assert environment[name] != os.environ[name]
    assert not [path for path in Path(environment["HOME"]).rglob("*") if path.is_file()]


def test_two_local_kaggles_share_no_key(ended, kaggle):
    """Each takes its own alone."""
    for key, expected in ((kaggle.key, 401), (ended.key, 403)):
        assert (
            raw(ended, f"/api/v1/{STATUS}", auth=("rehearsal", key), json={}).status_code
            == expected
        )
    assert kaggle.token != ended.token


def test_a_layout_that_is_none_is_refused(tmp_path):
    """Before anything is written."""
    with pytest.raises(ValueError, match="expected '2026', 'flat' or 'both'"):
        LocalKaggle(tmp_path / "kaggle", layout="2025")

    assert not (tmp_path / "kaggle").exists()


@pytest.mark.parametrize("name", ["é.txt", "日本.txt", 'a"b;c.txt', "100%.txt"])
def test_an_output_can_be_fetched_whatever_its_name_is(ended, client, name):
    """An address holds no letter that an address may not hold, and nobody's name adds a header."""
    path = ended.kernels.version("rehearsal/small-kernel", 1).working / name
    path.write_text("whole")

    try:
        assert download(client(ended), name).text == "whole"
    finally:
        path.unlink()


def test_the_journal_knows_what_a_refused_call_asked_for(kaggle, client):
    """A fault is looked for in the request that met it."""
    with pytest.raises(requests.HTTPError):
        client(kaggle).kernels.kernels_api_client.get_kernel(asked(types.ApiGetKernelRequest))

    assert kaggle.journal[-1][:3] == (
        "GetKernel",
        {"userName": "rehearsal", "kernelSlug": "small-kernel"},
        404,
    )


def test_a_call_is_in_the_journal_before_its_answer_goes_out(kaggle, client, monkeypatch):
    """A test that holds the answer found the journal still empty when both processors were busy."""
    noted, send = [], http_handler.Handler._send

    def look(handler, *rest):
        noted.append(len(kaggle.journal))
        return send(handler, *rest)

    monkeypatch.setattr(http_handler.Handler, "_send", look)

    with pytest.raises(requests.HTTPError):
        client(kaggle).kernels.kernels_api_client.get_kernel(asked(types.ApiGetKernelRequest))

    assert noted == [1]


def test_a_full_disk_is_named_in_the_answer_and_kept_for_the_rehearsal(kaggle, client, capfd):
    """As no site would: a client that got a 500 would ask again, and blame the network."""
    connected, before = client(kaggle), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with refused(400, "This Kaggle's disk is full: .*File too large"):
            save(connected, notebook("#" * 2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert "File too large" in kaggle.disk_full
    assert capfd.readouterr().err == ""
