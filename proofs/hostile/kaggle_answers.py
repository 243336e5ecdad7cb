"""Hostile names, addresses, archives and lists from the network, and hostile requests to the local
Kaggle.

The real client asks a local Kaggle, whose answers are changed on the way.
"""

import base64
import http.client
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import requests

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.kernel import artifact_manifest, output
from deploy.kernel.push_and_watch import Run
from localkaggle.fault_kinds import instead
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import BASE
from proofs.hostile import payloads
from proofs.hostile.attack import HARMLESS, REFUSED, Broken, Case
from proofs.hostile.guard import Guard
from tests.faults.world import competition

HANDLE = "rehearsal/digits-train-tpu"
RUN = Run(HANDLE, 2, "", "")
GOOD = b"id,label\n1,2\n"
ADDRESSES = (
    "http://example.com/x", "http://169.254.169.254/latest/meta-data",
    "http://localhost.example.com/x", "http://127.0.0.1.example.com/x",
    "http://[::ffff:169.254.169.254]/x", "http://2852039166/x", "http://user:word@example.com/x",
    "https://127.0.0.1:9/x", "https://[::1]:9/x", "file:///etc/hostname", "ftp://127.0.0.1/x",
    "gopher://127.0.0.1/x", "data:text/plain,evil", "javascript:alert(1)", "//example.com/x",
    "/etc/hostname", "../x", "", "http://", "http://[", "http://127.0.0.1:99999/x",
    "HTTP://EXAMPLE.COM/x", "http://example.com\\@localhost/x",
)  # fmt: skip

# Paths of requests: how they begin and go on, and files of a competition that nobody may read.
STARTS = ("storage", "upload", "v1/kernels/logs/stream", "api/v1/datasets.DatasetApiService")
PLACES = (
    "../../../etc/hostname", "/etc/hostname", "..%2f..%2fetc%2fhostname", "%00", "1/../../../x",
)  # fmt: skip
HIDDEN = (
    "../hidden/sample_submission.csv", "../../../objects/000001", "/etc/hostname", "..", "\0",
    "test/../../hidden/test",
)  # fmt: skip


@contextmanager
def ground(folder: Path) -> Iterator[tuple[Guard, list[Case]]]:
    """Give the guard and the cases; inside, a local Kaggle runs and the environment leads to it."""
    server = folder / "kaggle"
    folder.mkdir(parents=True)
    kept = dict(os.environ)
    guard = Guard(folder / "top", [server])
    try:
        with (
            redirect_stderr(io.StringIO()),  # where the server shows a fault of its own
            LocalKaggle(
                server, competitions=[competition()], offline=True, ready_seconds=0.01
            ) as local,
        ):
            os.environ.update(local.environment)
            os.environ.pop("TMPDIR")
            kaggle = Kaggle.connect(pace=Pace(0.01, 0.03, 0.2), timeouts=(2, 5))
            yield guard, list(Cases(local, kaggle, guard).all())
    finally:
        os.environ.clear()
        os.environ.update(kept)


class Cases:
    """Makes the cases of one local Kaggle."""

    def __init__(self, local: LocalKaggle, kaggle: Kaggle, guard: Guard) -> None:
        self.local, self.kaggle, self.guard = local, kaggle, guard
        self._names = payloads.names(guard.top)
        self._count = itertools.count()

    def all(self) -> Iterator[Case]:
        """Yield them, family by family."""
        for name in self._names:
            yield Case("output names", repr(name[:40]), partial(self._pulls, {name: GOOD}))
        yield from self._listings()
        for address in ADDRESSES:
            yield Case("addresses", address or "none", partial(self._fetches, address))
            if address:
                yield Case("redirects", address, partial(self._redirected, address))
        for name, content in payloads.zips(self.guard.top).items():
            yield Case("archives, downloaded", name, partial(self._unpacks, content))
            yield Case("archives, uploaded", name, partial(self._uploads, "x.zip", content))
        for name, content in payloads.tars(self.guard.top).items():
            yield Case("archives, downloaded", name, partial(self._pulls, {"x.tar.gz": content}))
            yield Case("archives, uploaded", name, partial(self._uploads, "x.tar.gz", content))
        for name in self._names:
            yield Case("upload names", repr(name[:40]), partial(self._announces, name))
        for name in self._names[::4]:
            yield Case("upload names", f"a folder {name[:40]!r}", partial(self._directory, name))
        yield from self._manifests()
        yield from self._asked()

    # Outputs that are pulled

    def _shared(self, content: bytes, ending: str = "file") -> str:
        path = self.local.storage.fresh()
        path.write_bytes(content)
        return f"{BASE}/storage/{self.local.storage.share('x', path)}/{ending}"

    def _pull(self, given: Path, files: Any) -> str:
        """Pull a run that lists these files; return HARMLESS where it was taken."""
        answer = {"files": files, "log": ""}
        self.local.faults.say(
            "GetKernelSessionStatus", itertools.repeat(instead(200, {"status": "COMPLETE"}))
        )
        self.local.faults.say("ListKernelSessionOutput", itertools.repeat(instead(200, answer)))
        try:
            output.pull(self.kaggle, RUN, given / "runs")
        finally:
            for operation in ("GetKernelSessionStatus", "ListKernelSessionOutput", "storage"):
                self.local.faults.say(operation, ())
        return HARMLESS

    def _pulls(self, files: Mapping[str, bytes], given: Path) -> str:
        listed = [
            {"fileName": name, "url": self._shared(content)} for name, content in files.items()
        ]
        self._pull(given, listed)
        there = {
            path.relative_to(given / "runs" / "digits-train-tpu-v2").as_posix(): path
            for path in given.rglob("*")
            if path.is_file()
        }
        for name, content in files.items():
            if name not in there or there[name].read_bytes() != content:
                raise Broken(f"{name!r} was taken, and there is {sorted(there)}")
        return HARMLESS

    def _listings(self) -> Iterator[Case]:
        def case(name: str, files: Callable[[], Any]) -> Case:
            return Case("listings", name, lambda given: self._pull(given, files()))

        def file(name: Any, **more: Any) -> dict[str, Any]:
            return {"fileName": name, "url": self._shared(GOOD), **more}

        yield case("one name twice", lambda: [file("x"), file("x")])
        yield case("a file and a folder", lambda: [file("a"), file("a/b")])
        yield case("a good name and a bad one", lambda: [file("x"), file("../../evil")])
        yield case("two cases of one name", lambda: [file("X"), file("x")])
        yield case("two forms of one name", lambda: [file("\u00e9"), file("e\u0301")])
        yield case("a file in place of a temporary one", lambda: [file("x"), file("x.relay-part")])
        yield case("a list in a list", lambda: [[file("x")]])
        climbing = [f"../{number}" for number in range(200)]
        yield case("two hundred names that climb", lambda: [file(name) for name in climbing])
        for value in (None, 7, True, [], {}, ["x"], {"x": 1}, 1e400):
            yield case(f"the name {value!r}", partial(lambda value: [file(value)], value))
            yield case(
                f"the address {value!r}",
                partial(lambda value: [{"fileName": "x", "url": value}], value),
            )
            yield case(f"the list {value!r}", partial(lambda value: value, value))

    def _fetches(self, address: str, given: Path) -> str:
        self._pull(given, [{"fileName": "x", "url": address}])
        raise Broken("it was fetched")

    def _redirected(self, address: str, given: Path) -> str:
        self.local.faults.say(
            "storage",
            itertools.repeat(
                instead(302, b"", Location=address.encode("ascii", "ignore").decode())
            ),
        )
        self._pull(given, [{"fileName": "x", "url": self._shared(GOOD)}])
        raise Broken("it was fetched")

    def _unpacks(self, content: bytes, given: Path) -> str:
        """Kaggle sends a file compressed as it likes: the address then ends in .zip, and the name
        does not.
        """
        self._pull(given, [{"fileName": "x.csv", "url": self._shared(content, "x.csv.zip")}])
        files = (path for path in given.rglob("*") if not path.is_dir())
        there = [path.relative_to(given).as_posix() for path in files]
        if sorted(Path(name).name for name in there) != [output.NOTE, "x.csv"]:
            raise Broken(f"there is {there}")
        return HARMLESS

    # Manifests and lists in what is pulled

    def _manifests(self) -> Iterator[Case]:
        digest = "0" * 64
        entry = {"sha256": digest, "size": 7}

        def told(files: Any, **more: Any) -> bytes:
            value = {"run_id": "r1", "weights_sha256": digest, "bundle_sha256": "b1"}
            return artifact_manifest.sealed({**value, "files": files, **more})

        bad: dict[str, bytes] = {
            f"announces {name[:40]!r}": told({name: entry})
            for name in self._names[::3]
            if "\ud800" not in name
        }
        bad |= {
            "twice a key": told({"x": entry}).replace(
                b'"run_id": "r1"', b'"run_id": "r2", "run_id": "r1"'
            ),
            "NaN": told({"x": entry}, loss=float("nan")),
            "a size of infinity": told({"x": {"sha256": digest, "size": float("inf")}}),
            "a size of 10^400": told({"x": entry}).replace(b'"size": 7', b'"size": 1e400'),
            "a size of 5,000 digits": told({"x": entry}).replace(
                b'"size": 7', b'"size": ' + b"7" * 5000
            ),
            "files as a list": told(["x"]),
            "files as a text": told("x"),
            "a file as a list": told({"x": ["sha256"]}),
            "a run_id that is a list": told({"x": entry}, run_id=["r1"]),
            "another bit": told({"x": entry}).replace(b"r1", b"r3"),
            "deep": b"[" * 100_000,
            "UTF-16": told({"x": entry}).decode().encode("utf-16"),
            "no object": b"[]",
            "half a surrogate": told({"x": entry}).replace(b"r1", b"\\ud800"),
            "a web page": b"<html><script>alert(1)</script></html>",
        }
        for name, content in bad.items():
            pulled = {"artifact/manifest.json": content, "artifact/x": b"weights"}
            yield Case("manifests, pulled", name, partial(self._refused, pulled))
        for name in self._names[::3]:  # a file that is not there; no step needs one of these
            pulled = {
                "outputs.json": json.dumps({"files": {name: entry}}).encode(),
                "x": b"weights",
            }
            case = f"lists {name[:40]!r}"
            yield Case("lists of outputs", case, partial(self._pulls, pulled))
        lists: dict[str, bytes] = {
            "lists a size of infinity": b'{"files": {"x": {"sha256": "0", "size": Infinity}}}',
            "lists a size of 5,000 digits": b'{"files": {"x": {"sha256": "0", "size": '
            + b"7" * 5000
            + b"}}}",
            "lists lists": b'{"files": [["x"]]}',
            "deep": b'{"files": ' + b"[" * 100_000,
            "is UTF-16": '{"files": {}}'.encode("utf-16"),
            "is a web page": b"<html>",
        }
        for name, content in lists.items():
            pulled = {"outputs.json": content, "x": b"weights"}
            yield Case("lists of outputs", name, partial(self._refused, pulled))
        for name, content in {
            "deep": b"[" * 100_000,
            "a list": b"[]",
            "UTF-16": "{}".encode("utf-16"),
            "NaN": b'{"sealed": NaN}',
        }.items():
            act = partial(self._pulls, {"bundle.json": content})
            yield Case("lists of outputs", f"a bundle.json that is {name}", act)
            act = partial(self._pulls, {"__notebook__.ipynb": content})
            yield Case("lists of outputs", f"a notebook that is {name}", act)

    def _refused(self, files: Mapping[str, bytes], given: Path) -> str:
        self._pull(
            given,
            [{"fileName": name, "url": self._shared(content)} for name, content in files.items()],
        )
        raise Broken("it was taken")

    # What a client sends to the local Kaggle

    def _post(self, operation: str, body: Any) -> requests.Response:
        token = base64.b64encode(
            f"{os.environ['KAGGLE_USERNAME']}:{self.local.key}".encode()
        ).decode()
        return requests.post(
            f"http://127.0.0.1:{self.local.port}/api/v1/{operation}",
            data=json.dumps(body),
            headers={"Authorization": f"Basic {token}", "Content-Type": "application/json"},
            proxies={"http": "", "https": ""},
            timeout=20,
        )

    def _announce(self, name: Any, content: bytes) -> str:
        answer = self._post(
            "blobs.BlobApiService/StartBlobUpload",
            {"name": name, "contentLength": len(content), "type": "DATASET"},
        )
        if answer.status_code != 200:
            return _answered(answer)
        token = str(answer.json()["token"])
        put = requests.put(
            f"http://127.0.0.1:{self.local.port}/upload/{token}",
            data=content,
            proxies={"http": "", "https": ""},
            timeout=20,
        )
        if put.status_code != 200:
            raise Broken(f"the upload was answered by {put.status_code}")
        return token

    def _create(self, **files: Any) -> str:
        slug = f"evil-{next(self._count)}"
        body = {
            "ownerSlug": "rehearsal",
            "slug": slug,
            "title": f"Evil {slug}",
            "isPrivate": True,
            "licenseName": "CC0-1.0",
            **files,
        }
        answer = self._post("datasets.DatasetApiService/CreateDataset", body)
        if answer.status_code != 200:
            return _answered(answer)
        folder = self.local.datasets.datasets[f"rehearsal/{slug}"].versions[-1].folder
        outside = [
            path
            for path in folder.rglob("*")
            if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve())
        ]
        if outside:
            raise Broken(f"{outside[0]} leads out of the dataset")
        return HARMLESS

    def _uploads(self, name: str, content: bytes, given: Path) -> str:
        token = self._announce(name, content)
        return self._create(files=[{"token": token}]) if token.startswith("blob-") else token

    def _announces(self, name: str, given: Path) -> str:
        return self._uploads(name, GOOD, given)

    def _directory(self, name: str, given: Path) -> str:
        token = self._announce("x", GOOD)
        return self._create(
            files=[], directories=[{"name": name, "files": [{"token": token}], "directories": []}]
        )

    def _asked(self) -> Iterator[Case]:
        family = "paths of requests"
        for place in PLACES:
            for start in STARTS:
                path = f"/{start}/{place}"
                yield Case(family, path, partial(self._gets, path))
        download = "competitions.CompetitionApiService/DownloadDataFile"
        for name in HIDDEN:
            body = {"competitionName": "digits", "fileName": name}
            act = partial(self._reads, download, body)
            yield Case(family, f"a competition's file {name!r}", act)
        for method in ("__class__", "_open_session", "close", "Dispatch", "../x", "__init__"):
            act = partial(self._reads, f"kernels.KernelsApiService/{method}", {})
            yield Case(family, f"the method {method}", act)

    def _gets(self, path: str, given: Path) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.local.port, timeout=20)
        connection.request("PUT" if path.startswith("/upload") else "GET", path, body=b"evil")
        return _status(connection.getresponse().status)

    def _reads(self, operation: str, body: Any, given: Path) -> str:
        return _answered(self._post(operation, body))


def _answered(answer: requests.Response) -> str:
    """Return REFUSED for an answer that says no."""
    return _status(answer.status_code, answer.text[:200])


def _status(code: int, text: str = "") -> str:
    if not 400 <= code < 500:
        raise Broken(f"the local Kaggle answered {code} {text}")
    return REFUSED
