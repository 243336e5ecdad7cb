"""Searches everything that the sessions of a rehearsal can read for the labels that are hidden.

Each labelled image gets a mark as its name, so that a row is found by its name, in a file or in a
path. Each session searches first, and then runs its notebook as it is. What a session sees of a
hidden image beside its pixels must not tell the label either: its place, its name, its inode and
its time.

As a program, with a config and a folder: rehearses the folder and prints what was found, as JSON.
The folder lies where every session could read it (`PLACE`), label by label, which is the worst
order. `opened` gives this process a disk there.
"""

import json
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from commands import project, rehearsal
from deploy.client import Kaggle
from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import Session, namespaces
from pipeline import config as configs
from pipeline.config.data_layout import Data
from tests.deploy import steps

PLACE = Path("/mnt")
MARK = "canary"
MARKS = re.compile(rf"{MARK}[0-9a-f]{{24}}")
FOUND = "found.json"
# Runs in a session. A file that has not changed since the marks were made cannot hold one.
SEARCH = """
import json, os, re
from pathlib import Path

MADE, MARK = {made!r}, re.compile(rb"{mark}[0-9a-f]{{24}}")
found = set()
for parent, folders, names in os.walk("/"):
    if parent == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "dev")]
    for path in (os.path.join(parent, name) for name in [*names, *folders]):
        found |= set(MARK.findall(os.fsencode(path)))
        try:
            if os.path.isfile(path) and os.lstat(path).st_ctime >= MADE:
                found |= set(MARK.findall(Path(path).read_bytes()))
        except OSError:
            pass
for path in Path("/proc").glob("[0-9]*/environ"):
    try:
        found |= set(MARK.findall(path.read_bytes() + path.with_name("cmdline").read_bytes()))
    except OSError:
        pass
Path("{file}").write_text(json.dumps(sorted(text.decode() for text in found)))
"""


class Searching(Session):
    """A session whose notebook begins with the search."""

    made = 0.0

    def __init__(self, folder: Path, notebook: str, **more: Any) -> None:
        whole = json.loads(notebook)
        source = SEARCH.format(made=self.made, mark=MARK, file=FOUND)
        cell = {"cell_type": "code", "id": "search", "metadata": {}, "source": source}
        whole["cells"].insert(0, {**cell, "execution_count": None, "outputs": []})
        super().__init__(folder, json.dumps(whole), **more)


def opened(config: Path, folder: Path) -> list[str]:
    """Return the words of a command that runs this module with an empty disk at `PLACE`."""
    # Without a namespace of processes: /proc would show the wrong ones.
    alone = [word for word in namespaces() if word not in ("--pid", "--fork", "--kill-child")]
    words = shlex.join([sys.executable, "-m", "tests.e2e.hidden_labels", str(config), str(folder)])
    return [*alone, "sh", "-c", f"mount -t tmpfs none {PLACE} && exec {words}"]


def mark() -> str:
    """Return a text that occurs nowhere else."""
    return f"{MARK}{secrets.token_hex(12)}"


def copied(layout: Data, folder: Path, out: Path) -> list[str]:
    """Copy a folder of images, label by label, with a mark as the name of each labelled one.

    Of a folder with a table, the table and the labelled images lie beside `out`, behind links.

    Returns:
        The marks.
    """
    place, table = str(layout.train_images), layout.train_csv
    left_out = [name for name in (place, table) if name]
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns(*left_out))
    marks: list[str] = []

    def copy(source: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        marks.append(mark())
        shutil.copyfile(source, target / f"{marks[-1]}{source.suffix}")

    if table is None:
        for path in sorted((folder / place).glob("*/*")):
            copy(path, out / place / path.parent.name)
        return marks
    beside = out.with_name(f"{out.name}-elsewhere")
    rows = pd.read_csv(folder / table, dtype=str).sort_values(str(layout.label_column))
    for name in rows[layout.id_column]:
        copy(folder / place / f"{name}{layout.suffix}", beside / place)
    rows.assign(**{layout.id_column: marks}).to_csv(beside / table, index=False)
    for name in left_out:
        (out / name).symlink_to(beside / name)
    return marks


def beyond_chance(labels: Sequence[str]) -> float:
    """Return by how many standard deviations more neighbours are equal than by chance."""
    codes = np.unique(labels, return_inverse=True)[1]
    random = np.random.default_rng(0)
    orders = [codes, *(random.permutation(codes) for _ in range(1000))]
    own, *chance = (int((order[1:] == order[:-1]).sum()) for order in orders)
    return float((own - np.mean(chance)) / np.std(chance))


def orders(seen: Path, layout: Data, truth: Mapping[str, str]) -> dict[str, float]:
    """Return how much each order of the hidden images tells (`beyond_chance`).

    Args:
        seen: the folder that the scored rerun sees.
        truth: {id: label} of its test set.
    """
    asked = pd.read_csv(seen / layout.sample_submission, dtype=str).iloc[:, 0]
    found = {path.name: path.stat() for path in (seen / str(layout.test_images)).rglob("*.*")}
    files = {name: found.get(name) or found[f"{name}{layout.suffix}"] for name in asked}
    keys: dict[str, Mapping[str, Any]] = {
        "place": {name: place for place, name in enumerate(asked)},
        "name": {name: name for name in asked},
        "inode": {name: file.st_ino for name, file in files.items()},
        "time": {name: file.st_mtime_ns for name, file in files.items()},
    }
    return {
        about: beyond_chance([truth[name] for name in sorted(asked, key=of.__getitem__)])
        for about, of in keys.items()
    }


def main(config: str, folder: Path) -> None:
    """Rehearse a folder, and print what its sessions found, as JSON."""
    Searching.made = PLACE.stat().st_ctime
    layout, data = configs.load(config).data, PLACE / "data"
    marks, open_mark = copied(layout, folder, data), mark()
    (PLACE / "open.txt").write_text(open_mark)  # shows that a session reads what lies here
    hosted = rehearsal.hosted_folder(config, data, "1m", internet=False)
    again = rehearsal.hosted_folder(config, data, "", internet=False)
    ours = project.load(config, PLACE / "runs", PLACE / "build", deadline_seconds=3600.0)
    place, options = PLACE / "kaggle", {"offline": True, "session": Searching}
    with LocalKaggle(place, **hosted.options, **options) as local:
        os.environ.update(local.environment)
        steps.relayed(Kaggle.connect(), ours, show=print, check=hosted.check)
    files = sorted((PLACE / "kaggle" / "sessions").rglob(FOUND))
    seen = [set(json.loads(path.read_text())) for path in files]
    (competition,), (other,) = (made.options["competitions"] for made in (hosted, again))
    slug = competition.slug
    paths = map(str, local.competitions.folder(slug).rglob("*"))
    visible = {text for path in paths for text in MARKS.findall(path)}
    hidden, shown = set(marks) - visible, visible | {open_mark}
    truth, others = (next(iter(made.solution.values())) for made in (competition, other))
    found = {
        "hidden": len(hidden),
        "leaked": [len(hidden & each) for each in seen],
        "missed": [len(shown - each) for each in seen],
        "orders": orders(local.competitions.folder(slug, hidden=True), layout, truth),
        "names that come again": len(truth.keys() & others.keys()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
