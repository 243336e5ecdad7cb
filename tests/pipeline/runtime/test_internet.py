"""Whether a session reaches the internet is known in its first cell, where a config needs it."""

import socket
from dataclasses import replace

import pytest

from pipeline import config as configs
from pipeline.errors import DeviceError
from pipeline.models import backbones
from pipeline.runtime import internet

IMAGENET = "model_options['pretrained']='imagenet'"


def test_a_host_that_answers_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]

        assert internet.prove("weights", address) == "Internet: 127.0.0.1 answers"


def test_a_session_without_the_internet_stops_with_what_to_verify():
    """Kaggle denies it in silence to an account whose phone is not verified."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]

    with pytest.raises(
        DeviceError, match=r"(?s)no internet: 127\.0\.0\.1.*weights.*kaggle.com/settings"
    ):
        internet.prove("weights", address)


@pytest.mark.parametrize(
    ("changes", "needed_for"),
    [
        ({"model": "mobilenetv3_small", "model_options": {"pretrained": "imagenet"}}, IMAGENET),
        ({"model": "mobilenetv3_small", "model_options": {}}, IMAGENET),
        ({"model": "mobilenetv3_small", "model_options": {"pretrained": "none"}}, ""),
        ({"model": "mobilenetv3_small", "model_options": {"pretrained": "keras/w/b0.h5"}}, ""),
        ({"model": "mobilenetv3_small", "model_options": {}, "init_from": "ann/first"}, ""),
        ({}, ""),
    ],
)
def test_only_weights_that_keras_fetches_need_the_internet(changes, needed_for):
    """A mounted file, random weights and another run's need none."""
    assert backbones.fetched(replace(configs.load("digits"), **changes)) == needed_for
