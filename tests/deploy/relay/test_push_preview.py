"""What a push shows before it spends."""

import json
from dataclasses import replace
from functools import partial

import pytest

from deploy import bundle
from tests.deploy import steps
from tests.deploy.small import HANDLE, push


@pytest.fixture
def look(live, ours):
    return partial(steps.looked, live, ours)


def test_a_first_push_is_shown_with_the_hours_that_are_left(look):
    """There is nothing to compare with yet."""
    seen = look()

    assert (seen.version, seen.changes, seen.active) == (0, [], [])
    assert seen.lines() == [
        f"push        {HANDLE}, version 1",
        "TPU quota   20.0 hours are left this week",
        "rehearsed   not this version; to do so: invoke dry-run --config digits, with --input DIR"
        " for a folder",
    ]


def test_what_was_rehearsed_is_the_code_that_was_pushed_then(look, ours):
    """A file that is edited during a rehearsal was not rehearsed."""
    module, first = ours.root / "pipeline" / "model.py", look()
    bundle.remember_rehearsal(ours.runs, first.built.code.sha256, "yesterday: whole")

    assert look().rehearsed == "yesterday: whole"
    module.write_text("changed = True\n")
    assert look().rehearsed.startswith("not this version")


def test_what_changed_since_a_version_is_shown_by_module_and_setting(live, look, ours, local):
    """Hash and commit always differ and are not shown. The machine is not in the code."""
    push(live, ours)
    version = local.kernels.version(HANDLE, 1)
    version.status, version.request.machine_shape = "COMPLETE", "TpuV6E8"
    for name, more in {
        "pipeline/model.py": "\n\nimport pipeline.new\n",
        "pipeline/new.py": "new = True\n",
        "kernels/train-tpu/notebook.py": "\n# %%\nprint('more')\n",
    }.items():
        with (ours.root / name).open("a") as file:
            file.write(more)

    seen = look()

    changed = ["notebook", "pipeline/model.py", "pipeline/new.py", "machine_shape: TpuV5E8"]
    assert (seen.version, seen.changes) == (1, changed)
    assert "changes     pipeline/new.py" in seen.lines()


def test_edits_on_kaggle_do_not_stop_a_push(live, look, ours, local):
    """A notebook can be edited on its page, including bundle.json."""
    push(live, ours)
    version = local.kernels.version(HANDLE, 1)
    version.status, notebook = "COMPLETE", json.loads(version.request.text)
    head = "%%writefile bundle.json\n"
    (cell,) = (one for one in notebook["cells"] if "".join(one["source"]).startswith(head))
    other_model = '{"expect": {"members": [{}]}}'
    for edited in ("# mine", "[]", other_model):
        cell["source"] = head + edited
        version.request.text = json.dumps(notebook)

        expected = ["the model or checkpoint"] if edited == other_model else []
        assert look().changes == expected


def test_a_training_on_two_gpus_takes_no_slot_of_the_tpu(live, look, ours):
    """Kaggle allows two GPU sessions and one TPU session."""
    on_pair = replace(ours, runtime="gpu-t4x2")
    run = push(live, on_pair)

    seen, pair = look(), steps.looked(live, on_pair)

    assert (seen.accelerator, seen.active) == ("TPU", [])
    assert (pair.accelerator, pair.hours_left, pair.active) == ("GPU", 30.0, [str(run)])
    live.delete_kernel(HANDLE)
    assert steps.looked(live, on_pair).active == []
