"""Notebooks on Kaggle, where a dry run does not reach."""

import pytest

from tests.doors.world import opened
from tests.shipped import DIGITS, there

pytestmark = pytest.mark.slow


def test_a_training_finds_all_images_that_a_cpu_session_decoded(tmp_path):
    """The same push again adopts the first one."""
    there("kernels/prepare-cpu/notebook.py")
    text = DIGITS.read_text()
    for before, after in (
        ("height=8, width=8", 'height=66, width=66, resize="stretch"'),
        ('name="digits"', 'name="large"'),
        ("epochs=40", "epochs=4"),
    ):
        assert before in text
        text = text.replace(before, after)
    with opened(tmp_path, competitions=["digits"]) as world:
        (world.project / "pipeline" / "configs" / "large.py").write_text(text)
        tasks = ["push-prepare --yes", "watch --kernel prepare-cpu", "push-prepare --yes"]
        tasks += ["push-train --yes", "watch"]
        ended = [world(*task.split(), config="large") for task in tasks]

        assert [code for code, *_ in ended] == [0] * len(tasks), ended
        assert [calls["SaveKernel"] for *_, calls in ended] == [1, 0, 0, 1, 0]
        version = world.local.kernels.version("rehearsal/digits-train-tpu", 1)
        assert "Found 1,197 of 1,197 decoded images" in version.log.text()


def test_a_tpu_that_turns_out_to_be_a_cpu_stops_the_run_in_its_first_cell(tmp_path):
    """An unverified account silently gets a CPU; the notebook notices before it spends anything."""
    with opened(tmp_path, competitions=["digits"], verified=False) as world:
        pushed, *_ = world("push-train", "--yes", config="digits")
        code, shown, _ = world("watch", config="digits")
        version = world.local.kernels.version("rehearsal/digits-train-tpu", 1)

    assert (pushed, code) == (0, 1)
    assert "Requested TpuV5E8" in shown and "verified" in shown
    assert '{"step"' not in version.log.text()


def test_features_of_a_linear_model_stay_out_of_the_output(tmp_path):
    """They may take gigabytes, and no later session reads them."""
    text = there("pipeline/configs/digits_mobilenet.py").read_text()
    text = text.replace('name="digits_mobilenet"', 'name="quick", fit="linear"')
    with opened(tmp_path, competitions=["digits"]) as world:
        (world.project / "pipeline" / "configs" / "quick.py").write_text(text)
        ended = [
            world(*task.split(), config="quick") for task in ("push-train --yes", "watch", "pull")
        ]
        version = world.local.kernels.version("rehearsal/digits-train-tpu", 1)

    assert [code for code, *_ in ended] == [0, 0, 0], ended
    assert "Features: 1,197 in total, 1,197 computed" in version.log.text()
    (pulled,) = world.project.glob("runs/digits-train-tpu-v1")
    assert (pulled / "artifact" / "manifest.json").is_file() and not (pulled / "features").exists()
