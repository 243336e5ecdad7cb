"""Rules that are not accepted are told with their address; what else the account lacks stays."""

import itertools

import pytest

from deploy.errors import Denied
from deploy.relay import competition_rules

SLUG = "verify-phone-prices"
ASKED = {
    "GetCompetition": lambda kaggle: competition_rules.look(kaggle, SLUG),
    "ListDataFiles": lambda kaggle: competition_rules.files(kaggle, SLUG),
    "DownloadDataFile": lambda kaggle: competition_rules.require_rules(kaggle, SLUG, ["a.csv"]),
}


@pytest.mark.parametrize("call", ASKED)
def test_the_slug_of_a_competition_hides_no_address_of_its_rules(kaggle, between, call):
    """Our own text names the slug; only Kaggle's words say what an account lacks."""
    between.say(call, itertools.repeat((403, {"code": 403, "message": "Permission denied"})))

    with pytest.raises(Denied, match=f"https://www.kaggle.com/competitions/{SLUG}/rules"):
        ASKED[call](kaggle)


@pytest.mark.parametrize("call", ASKED)
def test_a_phone_that_is_not_verified_is_not_taken_for_rules(kaggle, between, call):
    """They may be accepted, and its page would not help."""
    said = "You must verify your phone number"
    between.say(call, itertools.repeat((403, {"code": 403, "message": said})))

    with pytest.raises(Denied, match="phone is not verified") as caught:
        ASKED[call](kaggle)

    assert "/rules" not in str(caught.value)
