"""Each code gets its own error, and a requested pause is limited."""

import json

import pytest
import requests

from deploy import failures
from deploy.errors import CredentialError, Denied, Expired, NoQuota, NoSlot, NotFound, Refused


def answered(status: int, body: object, method: str = "POST", **headers: str) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response._content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    response.request = requests.Request(method, "https://storage.googleapis.com/x").prepare()
    return requests.HTTPError("the client's own text", response=response)


@pytest.mark.parametrize(
    ("status", "said", "kind", "code"),
    [
        (401, "Unauthorized", CredentialError, 3),
        (403, "Permission 'kernels.get' was denied", Denied, 3),
        (404, "Not found", NotFound, 4),
        (400, "The source must be less than 1 megabytes", Refused, 4),
        (400, "Maximum batch TPU session count of 1", NoSlot, 7),
        (429, "Too many requests", NoQuota, 7),
        # A push was seen to be answered by a 500 and to exist: nobody knows what happened.
        (500, "", type(None), None),
    ],
)
def test_each_refusal_is_its_own_error(status, said, kind, code):
    """The client calls an expired login "a wrong kernel slug"; the codes themselves are clear."""
    for number, body in ((status, {"error": {"message": said}}), (200, {"code": status})):
        verdict = failures.error_for("look", answered(number, {"message": said, **body}))

        assert (type(verdict), getattr(verdict, "exit_code", None)) == (kind, code)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("You must verify your phone number before you can submit", "phone"),
        ("Your account's identity is not verified", "identity"),
        ("Please complete the reCAPTCHA", "CAPTCHA"),
        ("Permission 'competitions.participate' was denied", "joined"),
        # The title of a competition is nothing that the account lacks.
        ("Phone Price only accepts Submissions from Notebooks", ""),
        ("Captcha Solver only accepts Submissions from Notebooks", ""),
    ],
)
def test_refusals_that_need_a_person_on_the_site_are_recognized(said, named):
    """Whatever the code: a push is refused in a 200."""
    for code in (400, 403):
        verdict = failures.error_for("submit", answered(code, {"message": said}))

        gate = getattr(verdict, "gate", "")
        assert named in gate and gate in str(verdict) and bool(gate) == bool(named)
        assert type(verdict) is (Denied if named or code == 403 else Refused)


def test_a_reasonable_pause_is_honoured():
    asked = [answered(503, {}, Retry_After=text) for text in ("7", "3600", "soon")]

    assert [failures.retry_after(error) for error in asked] == [7, 120, None]


@pytest.mark.parametrize(("method", "status"), [("GET", 400), ("GET", 403), ("PUT", 410)])
def test_an_address_that_the_storage_refuses_has_expired(status, method):
    """Files are GET or PUT, and Kaggle's calls POST. A refusal of the storage is about the address,
    not about the owner.
    """
    body = b"<Error><Code>ExpiredToken</Code></Error>"

    verdict = failures.error_for("download x", answered(status, body, method))

    assert type(verdict) is Expired and verdict.exit_code == 6
    assert not isinstance(failures.error_for("download x", answered(status, body)), Expired)
