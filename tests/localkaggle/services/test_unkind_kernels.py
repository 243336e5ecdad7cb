"""Facts of pushes and their versions: what was reported of the site happens if it is asked for."""

import time
from functools import partial

import kagglesdk.kernels.types.kernels_api_service as types
import pytest
import requests
from kagglesdk.kernels.types.kernels_enums import KernelExecutionType, KernelsListViewType
from kagglesdk.users.types.account_service import GenerateAccessTokenRequest

from localkaggle.facts import Facts
from localkaggle.services.protocol import make
from localkaggle.sessions.session import Outcome
from tests.localkaggle.pushed_notebooks import Scripted, finished, notebook, refused, save, soon

HANDLE = "rehearsal/small-kernel"
TPU = {"enable_tpu": True, "machine_shape": "TpuV5E8"}
ASKED = {"user_name": "rehearsal", "kernel_slug": "small-kernel"}


@pytest.fixture
def begin(start, client):
    """Return a function that starts a Kaggle with these facts, and gives it with its client."""

    def begin(session=None, **facts):
        session = session or partial(Scripted, lambda session: None)
        kaggle = start(facts=Facts(**facts), session=session)
        return kaggle, client(kaggle)

    return begin


def about(api, call: str, **more: object) -> object:
    """Ask about the small kernel."""
    request = make(getattr(types, f"Api{call}Request"), **ASKED, **more)
    names = {"GetKernel": "get_kernel", "GetKernelSessionStatus": "get_kernel_session_status"}
    return getattr(api.kernels.kernels_api_client, names[call])(request)


def status(api, **more: object) -> str:
    return str(about(api, "GetKernelSessionStatus", **more).status.name)


def mine(api) -> list[str]:
    """List one's own kernels."""
    request = make(types.ApiListKernelsRequest, group=KernelsListViewType.PROFILE)
    return [one.ref for one in api.kernels.kernels_api_client.list_kernels(request).kernels]


def refuse(kaggle, api) -> None:
    """Push where no time is left."""
    kaggle.kernels.used_seconds["TPU"] = 1e9
    assert "weekly TPU quota" in save(api, notebook("1"), **TPU).error
    kaggle.kernels.used_seconds["TPU"] = 0.0


def test_a_refused_first_push_may_leave_a_notebook_without_a_version(begin):
    """Every call about it fails until somebody deletes it; with a version it leaves nothing."""
    kaggle, api = begin(refused_push="shell")
    refuse(kaggle, api)

    assert save(api, notebook("1"), **TPU).error == "Notebook not found"
    with refused(500):
        about(api, "GetKernel")
    with refused(404):
        about(api, "GetKernelSessionStatus")
    del kaggle.kernels.kernels[HANDLE]
    assert save(api, notebook("1"), **TPU).version_number == 1
    finished(kaggle)
    refuse(kaggle, api)
    assert about(api, "GetKernel").metadata.current_version_number == 1


def test_a_refused_push_may_store_its_source(begin):
    """As a version that waits for ever, and takes no session from anybody."""
    kaggle, api = begin(refused_push="source")
    refuse(kaggle, api)

    assert "1" in about(api, "GetKernel").blob.source and status(api) == "QUEUED"
    assert save(api, notebook("2"), **TPU).version_number == 2
    assert finished(kaggle, number=2).status == "COMPLETE"
    assert status(api, version_label="v1") == "QUEUED"


def test_a_new_version_may_say_that_it_is_saved_only(begin):
    """And then how it really stands."""
    kaggle, api = begin(new_script_seconds=3600)
    save(api, notebook("1"))
    finished(kaggle)
    ((version,),) = (kernel.versions for kernel in kaggle.kernels.kernels.values())

    assert status(api) == "NEW_SCRIPT"
    version.pushed -= 3600
    assert status(api) == "COMPLETE"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "NEW_SCRIPT"),
        ({"kernel_execution_type": KernelExecutionType.SAVE_AND_RUN_ALL}, "COMPLETE"),
    ],
)
def test_a_push_may_have_to_say_that_it_wants_a_run(begin, asked, found):
    """One that names no execution type is only saved."""
    kaggle, api = begin(default_execution="saved")
    save(api, notebook("1"), **asked)

    assert soon(lambda: status(api) == found)
    assert bool(kaggle.kernels.version(HANDLE, 1).session) == bool(asked)


def test_a_new_address_may_have_to_begin_with_a_letter(begin):
    """The answer is the one that was seen."""
    kaggle, api = begin(leading_digit=False)

    assert save(api, notebook("1"), slug="2026-kernel").error == "Notebook not found"
    assert save(api, notebook("1"), slug="k-2026-kernel").version_number == 1
    assert list(kaggle.kernels.kernels) == ["rehearsal/k-2026-kernel"]


def test_a_notebook_may_come_to_another_address(begin):
    """The answer says which; the next push under the old name goes there, too."""
    _, api = begin(other_slug="-2")

    for number in (1, 2):
        answer = save(api, notebook("1"))
        assert (answer.ref, answer.version_number) == (f"/code/{HANDLE}-2", number)


def test_sources_may_be_named_by_their_addresses(begin):
    """What was pushed is what is mounted, whatever it is called later."""
    _, api = begin(prefixes=True)
    save(api, notebook("1"), competition_data_sources=["digits"])

    metadata = about(api, "GetKernel").metadata
    assert metadata.competition_data_sources == ["competitions/digits"]


def test_a_new_version_may_be_unknown_for_a_while(begin):
    """The first makes its kernel unknown; a later one leaves the older as the current one."""
    kaggle, api = begin(versions_seconds=1.0)
    save(api, notebook("1"))
    with refused(404):
        status(api)
    assert mine(api) == []
    assert soon(lambda: time.time() - kaggle.kernels.version(HANDLE, 1).pushed > 1)
    save(api, notebook("2"))

    assert about(api, "GetKernel").metadata.current_version_number == 1
    with refused(404):
        status(api, version_label="v2")


@pytest.mark.parametrize("code", ["404", "403"])
def test_what_is_not_there_is_answered_so(begin, code):
    """A kernel that was deleted, too."""
    _, api = begin(missing=code)
    save(api, notebook("1"))
    api.kernels.kernels_api_client.delete_kernel(make(types.ApiDeleteKernelRequest, **ASKED))

    with refused(int(code)):
        about(api, "GetKernel")


def test_a_key_may_be_refused_by_what_reads_a_kernel(begin):
    """The list and a push take it; and a token reads."""
    kaggle, api = begin(key_refused=True)
    save(api, notebook("1"))

    for call in ("GetKernel", "GetKernelSessionStatus"):
        with refused(403, r"Permission 'kernels\.get' was denied"):
            about(api, call)
    assert mine(api) == [HANDLE]
    address = f"http://127.0.0.1:{kaggle.port}/api/v1/kernels.KernelsApiService/GetKernel"
    signed = {"Authorization": f"Bearer {kaggle.token}"}
    asked = {"userName": "rehearsal", "kernelSlug": "small-kernel"}
    answer = requests.post(address, json=asked, headers=signed, timeout=60, proxies={"http": ""})
    assert answer.status_code == 200, answer.text


def test_a_push_may_reserve_its_whole_timeout(begin):
    """And gives back what it did not use."""
    kaggle, api = begin(reserves=True, session=partial(Scripted, lambda session: time.sleep(1)))
    kaggle.kernels.used_seconds["TPU"] = 17 * 3600.0

    error = save(api, notebook("1"), **TPU, session_timeout_seconds=4 * 3600).error
    assert error == "Maximum weekly TPU quota of 20.00 hours reached."
    assert not save(api, notebook("1"), **TPU, session_timeout_seconds=2 * 3600).error
    quota = kaggle.kernels.GetAcceleratorQuotaStatistics(None, "rehearsal")["tpuQuota"]
    assert 2 * 3600 - 2 <= float(quota["timeReserved"].rstrip("s")) <= 2 * 3600
    finished(kaggle)
    quota = kaggle.kernels.GetAcceleratorQuotaStatistics(None, "rehearsal")["tpuQuota"]
    assert quota["timeReserved"] == "0s"


class Killed(Scripted):
    """A session that is killed after it has written something."""

    def run(self) -> Outcome:
        """Write and be killed."""
        super().run()
        return Outcome("killed", "The session was killed", 1.0)


@pytest.mark.parametrize("kept", [True, False])
def test_of_a_session_that_was_killed_nothing_may_be_kept(begin, kept):
    """Of one that failed by itself all is."""
    act = lambda session: (session.working / "state").write_text("x")  # noqa: E731
    kaggle, api = begin(session=partial(Killed, act), killed_output=kept)
    save(api, notebook("1"))

    assert finished(kaggle).files() == ["state"] * kept


def test_an_access_token_may_end(begin):
    """Only the refresh token gives another, and neither is in the journal."""
    kaggle, _ = begin(token_seconds=0.3)

    def token(refresh_token: str) -> requests.Response:
        body = GenerateAccessTokenRequest.to_dict(
            make(GenerateAccessTokenRequest, refresh_token=refresh_token)
        )
        return requests.post(
            f"http://127.0.0.1:{kaggle.port}/v1/users.AccountService/GenerateAccessToken",
            json=body,
            timeout=60,
        )

    assert token("wrong").status_code == 401
    given = token(kaggle.refresh_token).json()["token"]
    assert kaggle.user(f"Bearer {given}") == "rehearsal"
    assert soon(lambda: kaggle.user(f"Bearer {given}") is None)
    assert kaggle.user(f"Bearer {kaggle.token}") == "rehearsal"
    noted = str(kaggle.journal)
    assert given not in noted and kaggle.refresh_token not in noted
