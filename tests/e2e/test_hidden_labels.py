"""No session of a rehearsal can find the labels that it hides, and the search would see them."""

import json
import os
import subprocess

import numpy as np
import pytest

from localkaggle.sessions.session import namespaces
from pipeline.config import Data
from tests.e2e import hidden_labels
from tests.e2e.made_folders import KINDS, LAYOUTS, images
from tests.e2e.project import by_jax, copied, given, variables

MOST = 5.0  # standard deviations: one order in three million comes to more by chance


@pytest.mark.slow
@pytest.mark.skipif(not namespaces(), reason="namespaces: the search needs a disk of its own")
@pytest.mark.parametrize("name", ["signs", "surfaces"])
def test_what_a_session_can_read_tells_no_hidden_label(name, seed, tmp_path):
    """Of a table behind links, and of a folder for each label."""
    project, folder, config = by_jax(copied(tmp_path)), tmp_path / "data", tmp_path / "mine.py"
    images(folder, seed, LAYOUTS[name])
    words = ["--for", "cpu", "--budget", "30s", "--write", config]
    given(project, "invoke", "inspect", "--input", folder, *words)

    done = subprocess.run(
        hidden_labels.opened(config, folder),
        cwd=project,
        env=variables(project),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["hidden"] == 40
    assert found["leaked"] == found["missed"] == [0, 0, 0]  # of three sessions
    assert max(found["orders"].values()) < MOST
    assert found["names that come again"] == 0


def test_the_search_sees_labels_in_an_order(tmp_path):
    """The cats come first, by place in the table and by time, and not once both are shuffled."""
    names = [f"{number * 7919 % 1000:03d}" for number in range(200)]
    truth = {name: "cat" if place < 100 else "dog" for place, name in enumerate(names)}
    told = []
    for order in (range(200), np.random.default_rng(0).permutation(200)):
        seen = tmp_path / str(len(told))
        (seen / "test").mkdir(parents=True)
        for name, time in zip(names, order, strict=True):
            (seen / "test" / f"{name}.png").touch()
            os.utime(seen / "test" / f"{name}.png", ns=(0, int(time)))
        asked = "".join(f"{names[place]},cat\n" for place in order)
        (seen / "sample_submission.csv").write_text(f"id,label\n{asked}")
        told.append(hidden_labels.orders(seen, Data(height=8, width=8, channels=1), truth))

    for about in ("place", "time"):
        assert told[0][about] > MOST > told[1][about]


def test_the_folder_of_the_search_tells_its_labels_by_every_name_and_place(seed, tmp_path):
    """Else a search that finds nothing would show nothing."""
    images(tmp_path / "surfaces", seed, LAYOUTS["surfaces"])
    layout = Data(
        height=16, width=16, channels=3, train_csv=None, train_images="pictures", suffix="*"
    )

    marks = hidden_labels.copied(layout, tmp_path / "surfaces", tmp_path / "out")

    paths = sorted((tmp_path / "out" / "pictures").rglob("*.jpg"))
    assert sorted(marks) == sorted(path.stem for path in paths) and len(set(marks)) == 200
    by_time = sorted(paths, key=lambda path: path.stat().st_mtime_ns)
    assert [path.parent.name for path in by_time] == sorted(path.parent.name for path in paths)
    assert {path.parent.name for path in paths} == set(KINDS)
