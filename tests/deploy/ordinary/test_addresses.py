"""Two configs with the same name are told apart."""

from dataclasses import replace

import pytest

from deploy.errors import Refused, UsageError
from deploy.project import TRAIN
from deploy.records import Records
from localkaggle.faults import instead
from tests.deploy import small


def test_the_last_run_has_the_same_competition(host, ours):
    """In another folder, or with an edited `competition`."""
    host(queue_seconds=3600.0)
    run = small.push(small.connect(), ours)

    assert Records(ours).last_run(TRAIN).handle == run.handle
    with pytest.raises(UsageError, match="the config digits and the competition letters"):
        Records(replace(ours, competition="letters")).last_run(TRAIN)


def test_a_taken_title_names_the_way_to_another_address(host, ours):
    """Kaggle answers 409, or an error in a 200."""
    local, taken = host(), 'The requested title "Digits Train Tpu" is already in use by a notebook.'
    for answer in (instead(409, {"code": 409, "message": taken}), instead(200, {"error": taken})):
        local.faults.say("SaveKernel", [answer])

        with pytest.raises(Refused, match=r"notebook\.\n(.|\n)*relay.toml:\n\[slugs\]"):
            small.push(small.connect(), ours)
