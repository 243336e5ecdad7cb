"""Each code gets its own error, and a requested pause is kept within reason."""

import json

import pytest
import requests

from deploy import failures
from deploy.errors import CredentialError, Denied, Expired, NoQuota, NoSlot, NotFound, Refused


def answered(status: int, body: object, **headers: str) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response._content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return requests.HTTPError("the client's own text", response=response)


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (401, {"code": 401, "message": "Unauthorized"}, CredentialError, 3),
        (403, {"code": 403, "message": "Permission 'kernels.get' was denied"}, Denied, 3),
        (404, {"code": 404, "message": "Not found"}, NotFound, 4),
        (400, {"code": 400, "message": "The source must be less than 1 megabytes"}, Refused, 4),
        (400, {"code": 400, "message": "Maximum batch TPU session count of 1"}, NoSlot, 7),
        (429, {"error": {"code": 429, "message": "Too many requests"}}, NoQuota, 7),
        (200, {"code": 403, "message": "said inside a 200"}, Denied, 3),
        # A push was seen to be answered by a 500 and to exist: nobody knows what happened.
        *((status, b"<html>", type(None), None) for status in (500, 502, 503, 504)),
    ],
)
def test_each_refusal_is_its_own_error(status, body, kind, code):
    """The client calls an expired login "a wrong kernel slug"; the codes themselves are clear."""
    verdict = failures.error_for("look", answered(status, body))

    assert (type(verdict), getattr(verdict, "exit_code", None)) == (kind, code)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("You must verify your phone number before you can submit", "phone"),
        ("Your account's identity is not verified", "identity"),
        ("Please complete the reCAPTCHA", "CAPTCHA"),
        ("Permission 'competitions.participate' was denied", "joined"),
    ],
)
def test_what_only_a_person_can_do_on_the_site_is_told_from_other_refusals(said, named):
    """Whatever the code is: a push is refused for it inside a 200."""
    for code in (400, 403):
        verdict = failures.error_for("submit", answered(code, {"message": said}))

        assert type(verdict) is Denied and named in verdict.gate and verdict.gate in str(verdict)


@pytest.mark.parametrize(
    "title", ["Phone Price", "Identity of Whales", "Persona Chat", "Captcha Solver"]
)
def test_the_title_of_a_competition_is_nothing_that_the_account_lacks(title):
    """Who read that the phone was not verified looked for the fault in the wrong place."""
    said = f"{title} only accepts Submissions from Notebooks"

    for code, kind in ((400, Refused), (403, Denied)):
        verdict = failures.error_for("submit", answered(code, {"message": said}))

        assert type(verdict) is kind and not getattr(verdict, "gate", "")


@pytest.mark.parametrize(
    ("text", "pause"),
    [("7", 7), ("3600", 120), ("soon", None)],
)
def test_a_reasonable_pause_is_honoured(text, pause):
    assert failures.retry_after(answered(503, {}, Retry_After=text)) == pause


@pytest.mark.parametrize(("method", "status"), [("GET", 400), ("GET", 403), ("PUT", 410)])
def test_an_address_that_the_storage_does_not_take_is_nobody_s_fault(status, method):
    """Files are got or put, and Kaggle's calls are posted; what the storage refuses has expired,
    and says nothing about owners.
    """
    error = answered(status, b"<Error><Code>ExpiredToken</Code></Error>")
    assert error.response is not None
    error.response.request = requests.Request(method, "https://storage.googleapis.com/x").prepare()

    verdict = failures.error_for("download x", error)

    assert type(verdict) is Expired and verdict.exit_code == 6
    error.response.request.method = "POST"
    assert not isinstance(failures.error_for("download x", error), Expired)
