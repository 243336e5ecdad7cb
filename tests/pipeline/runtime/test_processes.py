"""Processes find each other, or it is said why not. tests/numerics trains with two."""

import socket

import numpy as np
import pytest

from pipeline.__main__ import main
from pipeline.runtime import processes, replicas


@pytest.fixture
def command(trained, written_config, tiny, tmp_path):
    """Return the words that train."""
    given = ["--config", written_config(tiny), "--input", trained[0], "--output", tmp_path / "out"]
    return ["train", *map(str, given)]


@pytest.mark.parametrize(
    "words",
    [
        ["--processes", "2"],
        ["--processes", "2", "--process-id", "2", "--coordinator", "127.0.0.1:1"],
        ["--process-id", "0", "--coordinator", "127.0.0.1:1"],
        *(
            ["--processes", "2", "--process-id", "0", "--coordinator", address]
            for address in ("127.0.0.1", "127.0.0.1:99999", ":5", "http://a:5")
        ),
    ],
)
def test_options_that_cannot_work_are_refused(command, tmp_path, words):
    assert main([*command, *words]) == 2
    assert not (tmp_path / "out").exists()


def test_a_port_that_is_taken_is_said_before_the_others_wait(command, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = ["--processes", "2", "--process-id", "0", "--coordinator", address]

        assert main([*command, *words]) == 1

    assert "is taken" in capsys.readouterr().err


def test_one_process_is_asked_nothing(tmp_path):
    """It writes where it is told, agrees with itself, and computes whole batches."""
    with processes.folder(tmp_path) as own:
        assert own == tmp_path
    agreement = processes.Agreement()
    assert agreement.on(None) is None and agreement.on("asked to stop") == "asked to stop"
    assert processes.shared("a run") == "a run" and processes.first()
    array = np.arange(8)
    assert np.array_equal(replicas.put_part(None, array, 8, axis=0)[0], array)
    assert replicas.part(None, 8) == slice(0, 8)
