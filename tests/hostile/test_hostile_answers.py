"""Names, addresses, archives and lists from Kaggle end inside the folder of a pull, or are refused.
The real client uses a local Kaggle, whose answers are changed on the way.
"""

import io
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy import events, output
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import RelayError
from deploy.runs import Run
from formats import checksums
from localkaggle.faults import instead
from localkaggle.server import LocalKaggle
from tests.hostile import payloads
from tests.hostile.guard import Guard

RUN = Run("rehearsal/digits-train-tpu", 2)
NAME, GOOD = "x.csv", b"id,label\n1,2\n"
ADDRESSES = (
    "http://example.com/x", "http://169.254.169.254/latest/meta-data",
    "http://localhost.example.com/x", "http://127.0.0.1.example.com/x",
    "http://[::ffff:169.254.169.254]/x", "http://2852039166/x", "http://user:word@example.com/x",
    "https://127.0.0.1:9/x", "https://[::1]:9/x", "file:///etc/hostname", "ftp://127.0.0.1/x",
    "data:text/plain,evil", "javascript:alert(1)", "//example.com/x", "/etc/hostname", "../x",
    "http://", "http://[", "http://127.0.0.1:99999/x", "HTTP://EXAMPLE.COM/x",
    "http://example.com\\@localhost/x",
)  # fmt: skip
ENTRY = {"sha256": "0" * 64, "size": 7}


@dataclass(frozen=True)
class Kaggles:
    """A local Kaggle, a client of it, and the guard around what the client writes."""

    local: LocalKaggle
    client: Kaggle
    guard: Guard

    def address(self, content: bytes, ending: str = "file") -> str:
        """Return an address at which the storage has these bytes."""
        path = self.local.storage.fresh()
        path.write_bytes(content)
        return f"http://localhost{self.local.storage.share(ending, path)}"

    def pull(self, files: Any, redirect: str | None = None) -> dict[str, bytes] | str:
        """Return what a pull of a run that lists these files wrote, or its refusal in words."""
        said = {
            "GetKernelSessionStatus": instead(200, {"status": "COMPLETE"}),
            "ListKernelSessionOutput": instead(200, {"files": files, "log": ""}),
            "storage": redirect and instead(302, b"", Location=redirect),
        }
        for operation, answer in said.items():
            self.local.faults.say(operation, itertools.repeat(answer))
        with self.guard.watching() as given:
            try:
                folder = events.completed(output.pull(self.client, RUN, given), print)
            except RelayError as error:
                assert len(str(error)) > 30
                return str(error)
            return {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in folder.rglob("*")
                if not path.is_dir() and path.name != output.NOTE
            }

    def pull_files(self, files: Mapping[str, bytes]) -> dict[str, bytes] | str:
        """Return what a pull wrote of a run that lists these files with these contents."""
        return self.pull([{"fileName": name, "url": self.address(files[name])} for name in files])


@pytest.fixture(scope="module")
def kaggles(tmp_path_factory) -> Iterator[Kaggles]:
    folder = tmp_path_factory.mktemp("kaggles")
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stderr(io.StringIO()),  # where the server shows a fault of its own
        LocalKaggle(folder / "server", offline=True, ready_seconds=0.01) as local,
    ):
        for name, value in local.environment.items():
            patch.setenv(name, value)
        client = Kaggle.connect(pace=Pace(0.01, 0.03, 0.2), timeouts=(20, 20))
        yield Kaggles(local, client, Guard(folder / "top", folder / "server"))


ODD = (None, 7, True, [], {}, ["x"], {"x": 1}, 1e400)
TOGETHER = (("x", "x"), ("a", "a/b"), ("x", "../../evil"), ("X", "x"), ("\u00e9", "e\u0301"))


@pytest.mark.parametrize("names", [*TOGETHER, *((odd,) for odd in ODD)], ids=repr)
def test_names_that_conflict_are_refused_or_all_kept(kaggles, names):
    got = kaggles.pull([{"fileName": name, "url": kaggles.address(GOOD)} for name in names])

    assert isinstance(got, str) or got == dict.fromkeys(names, GOOD)


def listed(kaggles, name):
    """Such a file is refused, or taken by that name."""
    return kaggles.pull_files({name: GOOD}), {name: GOOD}


def packed(kaggles, name):
    """Kaggle sends a file compressed as it likes: its address then ends in .zip, its name does not.
    Its member has that name.
    """
    address = kaggles.address(payloads.archive((name[:9000] or "x", GOOD)), f"{NAME}.zip")
    return kaggles.pull([{"fileName": NAME, "url": address}]), {NAME: GOOD}


def announced(kaggles, name):
    """No step needs such a file of the list."""
    files = {"outputs.json": json.dumps({"files": {name: ENTRY}}).encode(), "x": b"weights"}
    return kaggles.pull_files(files), files


def manifest(files: Any) -> bytes:
    told = {"run_id": "r1", "weights_sha256": "0" * 64, "bundle_sha256": "b1", "files": files}
    return checksums.sealed(told)


def of_an_artifact(kaggles, name):
    """An artifact that lacks a file is not whole."""
    files = {"artifact/manifest.json": manifest({name: ENTRY}), "artifact/x": b"weights"}
    return kaggles.pull_files(files), None


@pytest.mark.parametrize("most", [8, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", [listed, packed, announced, of_an_artifact])
def test_a_name_is_refused_or_written_in_its_place(kaggles, way, most):
    @settings(max_examples=most)
    @given(payloads.names(kaggles.guard.top))
    def each(name: str) -> None:
        if way is listed or "\ud800" not in name:
            got, right = way(kaggles, name)
            assert isinstance(got, str) or got == right

    each()


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_is_fetched_from_elsewhere(kaggles, address):
    assert isinstance(kaggles.pull([{"fileName": "x", "url": address}]), str)
    good = [{"fileName": "x", "url": kaggles.address(GOOD)}]
    assert isinstance(kaggles.pull(good, redirect=address), str)


@pytest.mark.parametrize("most", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_an_archive_gives_the_one_file_or_nothing(kaggles, most):
    """Kaggle may compress a file: its address then ends in .zip, and its name does not."""
    archives = payloads.zips(NAME, GOOD)

    @settings(max_examples=most)
    @given(st.sampled_from(list(archives)))
    def each(what: str) -> None:
        url = kaggles.address(archives[what], f"{NAME}.zip")
        got = kaggles.pull([{"fileName": NAME, "url": url}])

        assert isinstance(got, str) or list(got) == [NAME]
        assert what not in ("another name", "another sum", "encrypted") or isinstance(got, str)

    each()


WHOLE = manifest({"x": ENTRY})
TEXTS = {
    "a key twice": WHOLE.replace(b'"run_id": "r1"', b'"run_id": "r2", "run_id": "r1"'),
    "a size of infinity": manifest({"x": {**ENTRY, "size": float("inf")}}),
    "a size of 5,000 digits": WHOLE.replace(b'"size": 7', b'"size": ' + b"7" * 5000),
    "files that are lists": manifest([["x"]]),
    "half a surrogate": WHOLE.replace(b"r1", b"\\ud800"),
    "UTF-16": WHOLE.decode().encode("utf-16"),
}


@pytest.mark.parametrize("what", TEXTS)
def test_a_manifest_that_proves_nothing_is_refused(kaggles, what):
    files = {"artifact/manifest.json": TEXTS[what], "artifact/x": b"weights"}

    assert isinstance(kaggles.pull_files(files), str)
