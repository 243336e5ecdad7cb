"""`python -m pipeline` says what is wrong in one message, with the right exit code."""

import json
from collections.abc import Callable

import pytest

from pipeline.__main__ import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command and gives (exit code, stdout, stderr)."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_describe_tells_parameters_shapes_and_applied_numbers(run):
    """The benchmark's model, before anything is spent on it."""
    code, out, _ = run("describe", "--config", "cifar100_wrn", "--json")

    told = json.loads(out.splitlines()[-1])
    assert code == 0
    assert told["parameters"] == {"total": 103_465_028, "trainable": 103_452_484, "non_trainable": 12_544}
    assert told["input"]["shape"] == [None, 32, 32, 3]
    assert told["optimizer"]["peak_rate"] == pytest.approx(1e-3 * 8**0.5)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("describe", "--config", "digit"), 2, "cifar100_wrn, digits"),
        (("train", "--config", "digits", "--input", "/nowhere", "--output", "out"), 2, "no such folder"),
        (("train", "--config", "digits", "--input", ".", "--output", "out", "--max-steps", "0"), 2, "--max-steps 0"),
        (
            ("infer", "--config", "digits", "--input", ".", "--artifact", "/nowhere", "--output", "out"),
            1,
            "manifest.json",
        ),
    ],
)
def test_a_wrong_call_is_answered_in_one_message(run, words, code, said, tmp_path, monkeypatch):
    """On stderr, and as JSON on the last line when asked; nothing is written."""
    monkeypatch.chdir(tmp_path)

    found, out, err = run(*words, "--json")

    assert found == code
    assert said in err
    assert err.startswith("Error: ")
    assert json.loads(out.splitlines()[-1])["exit_code"] == code
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "train.csv").unlink(), "train.csv is missing"),
        (lambda folder: (folder / "train" / "r001.png").write_bytes(b"no image"), "r001.png cannot be decoded"),
    ],
)
def test_broken_data_ends_the_run_by_name(run, competition, tiny, tmp_path, spoil, said):
    """Exit code 1, no artifact."""
    (tmp_path / "tiny.py").write_text(
        f"from pipeline.config import from_json\nCONFIG = from_json({tiny.to_json()!r})\n"
    )
    spoil(competition)

    code, _, err = run("train", "--config", tmp_path / "tiny.py", "--input", competition, "--output", tmp_path / "out")

    assert code == 1
    assert said in err
    assert not (tmp_path / "out" / "artifact").exists()


def test_the_artifact_of_another_config_is_refused(run, trained, tmp_path):
    """Usage: the two arguments contradict each other."""
    folder, output, _ = trained

    code, _, err = run(
        "infer",
        "--config",
        "digits",
        "--input",
        folder,
        "--artifact",
        output / "artifact",
        "--output",
        tmp_path / "out",
    )

    assert code == 2
    assert "--config tiny" in err
