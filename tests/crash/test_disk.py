"""The model of a disk permits what POSIX permits, and the recorder misses no call."""

import os
from pathlib import Path

import pytest

from tests.crash import disk


def synced(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def written_and_synced(top: Path) -> None:
    (top / "a").write_bytes(b"whole")
    synced(top / "a")
    (top / "b").mkdir()


def renamed_and_synced(top: Path) -> None:
    (top / "a").rename(top / "b")
    synced(top)
    (top / "c").mkdir()
    (top / "d").mkdir()


@pytest.mark.parametrize(
    ("work", "before", "possible", "always"),
    [
        pytest.param(
            lambda top: (top / "a").write_bytes(b"12345678"),
            {},
            [{}, *({"a": text} for text in (b"", b"1", b"1234", bytes(8), b"12345678"))],
            lambda tree: True,
            id="a write may be cut off, missing or zeros until an fsync",
        ),
        pytest.param(
            written_and_synced,
            {},
            [{"b": None}, {"a": b"whole", "b": None}],
            lambda tree: "b" not in tree or tree.get("a", b"whole") == b"whole",
            id="the fsync of a file keeps its bytes, and not its name",
        ),
        pytest.param(
            renamed_and_synced,
            {"a": b"x"},
            [{"b": b"x"}, {"b": b"x", "d": None}],
            lambda tree: ("a" in tree) != ("b" in tree) and ("b" in tree or len(tree) == 1),
            id="the fsync of a folder keeps its names, and not those that come later",
        ),
        pytest.param(
            lambda top: (top / "a").replace(top / "b"),
            {"a": b"new", "b": b"old"},
            [{"a": b"new", "b": b"old"}, {"b": b"new"}],
            lambda tree: tree in ({"a": b"new", "b": b"old"}, {"b": b"new"}),
            id="a rename happens whole or not at all",
        ),
    ],
)
def test_a_power_failure_leaves_a_state_that_posix_permits(
    work, before, possible, always, tmp_path
):
    top = disk.write(before, tmp_path / "top")

    found = [tree for _, tree in disk.states(disk.record(top, lambda: work(top)), seed=0)]

    assert [tree for tree in possible if tree not in found] == []
    assert all(map(always, found))


def test_an_unwatched_write_is_an_error(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 10)

    with pytest.raises(RuntimeError, match="do not explain the disk"):
        disk.record(tmp_path, lambda: os.truncate(tmp_path / "a", 3))
