"""Wire: HTTP for the server. Each request is a call of a service, an upload, a download, or a log
to follow.
"""

import base64
import contextlib
import hashlib
import io
import json
import re
import shutil
import socket
import threading
import traceback
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, unquote, urlsplit

from localkaggle.faults import Faults
from localkaggle.services.datasets import Datasets
from localkaggle.services.kernels import Kernels
from localkaggle.services.protocol import BASE, Fault, Redirect, Storage


class Account(Protocol):
    """What the handler asks of the server (`localkaggle.server.LocalKaggle`)."""

    faults: Faults
    journal: list[tuple[str, Any, int, Any]]
    lock: threading.RLock
    storage: Storage
    kernels: Kernels
    datasets: Datasets

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""

    def user(self, header: str | None) -> str | None:
        """Return whose credentials the Authorization header holds."""

    def dispatch(self, service: str, method: str, body: bytes, authorization: str | None) -> Any:
        """Answer one call of a service."""


class Handler(BaseHTTPRequestHandler):
    """Answers one connection. `kaggle` does the rest."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # head and body are written apart; each answer would wait 40 ms for the client's ACK
    )

    def __init__(self, kaggle: Account, *arguments: Any) -> None:
        self.kaggle = kaggle
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing; `LocalKaggle.journal` knows the calls."""

    def handle(self) -> None:
        """Answer until the connection ends, also where the client ends it in the middle."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            super().handle()

    def handle_one(self) -> None:
        """Answer any request, or let it go wrong as planned."""
        faults, operation = self.kaggle.faults, _operation(self.path)
        planned = faults.take(operation)
        if planned is None:
            return self._answer()
        buffer, written, kept = io.BytesIO(), self.wfile, self.close_connection
        self.wfile = buffer

        def answered() -> bytes:
            self._answer()
            return buffer.getvalue()

        try:
            usable = faults.strike(*planned, operation, answered, self._body_away, written.write)
            written.flush()
        finally:
            self.wfile = written
        self.close_connection = kept or not usable

    def _body_away(self) -> None:
        """Read what the client sends, for a request that nobody will look at."""
        with contextlib.suppress(Fault):
            self._body()

    def _answer(self) -> None:
        address = urlsplit(self.path)
        if address.netloc and address.hostname not in ("localhost", "127.0.0.1"):
            self.close_connection = True  # its body stays unread
            return self._fail(
                Fault(
                    403,
                    f"This is a Kaggle on 127.0.0.1; it leads nowhere else, and not to {address.hostname}",
                )
            )
        path = re.sub(r"^/api(?=/v1/)", "", unquote(address.path))
        call = re.fullmatch(r"/v1/([a-z]+\.[A-Za-z]+)/([A-Za-z]+)", path)
        log = re.fullmatch(r"/v1/kernels/logs/stream/([^/]+/[^/]+)", path)
        try:
            body = self._body()
            if path.startswith("/upload/") and self.command == "PUT":
                with self.kaggle.lock:
                    code, headers = self.kaggle.datasets.receive(
                        path.split("/")[2], self.headers.get("Content-Range"), body
                    )
                return self._send(code, b"", headers)
            if path.startswith("/storage/") and self.command in ("GET", "HEAD"):
                return self._download(path.split("/")[2])
            if log and self.command == "GET":
                return self._stream(
                    log.group(1), parse_qs(address.query).get("versionLabel", [""])[0]
                )
            if call and self.command == "POST":
                return self._call(call.group(1), call.group(2), body)
            raise Fault(404, "Not found")
        except Fault as fault:
            return self._fail(fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has gone
        except Exception as error:
            # A fault of this server: said as the site would, and shown to whoever mends it.
            traceback.print_exc()
            self.close_connection = True
            return self._fail(Fault(500, f"Internal error: {type(error).__name__}"))

    do_GET = do_POST = do_PUT = do_HEAD = handle_one

    def _call(self, service: str, method: str, body: bytes) -> None:
        """Dispatch one call, note it, and only then answer: whoever holds the answer finds the call
        in the journal.
        """
        location: dict[str, str] = {}
        code, answer = 500, None  # unless something better comes of it
        try:
            answer = self.kaggle.dispatch(service, method, body, self.headers.get("Authorization"))
            code = 200
        except Redirect as redirect:
            code = 302
            name, _ = self.kaggle.storage.objects[redirect.key]
            location["Location"] = (
                f"{self._base()}/storage/{redirect.key}/{quote(name)}?X-Goog-Signature=local"
            )
        except Fault as fault:
            code, answer = fault.code, fault.message
            raise
        finally:
            # A token that somebody asks about is a credential; it stays out.
            asked = None if method == "IntrospectToken" else _parsed(body)
            self.kaggle.journal.append((method, asked, code, answer))
        if location:
            self._send(302, b"", location)
        else:
            self._json(200, self._addressed(answer))

    def _addressed(self, answer: Any) -> Any:
        """Turn the keys and addresses in an answer into ones that this client can reach."""
        if isinstance(answer, dict):
            for file in answer.get("files") or []:
                if isinstance(file, dict) and str(file.get("url", "")).isdigit():
                    file["url"] = (
                        f"{self._base()}/storage/{file['url']}/file?X-Goog-Signature=local"
                    )
            if str(answer.get("createUrl", "")).startswith(BASE):
                answer["createUrl"] = self._base() + answer["createUrl"].removeprefix(BASE)
        return answer

    def _base(self) -> str:
        """Return this server's address as this client sees it: through the proxy, or directly."""
        return (
            BASE
            if urlsplit(self.path).netloc
            else f"http://{self.headers.get('Host', f'127.0.0.1:{self.kaggle.port}')}"
        )

    def _download(self, key: str) -> None:
        found = self.kaggle.storage.objects.get(key)
        if found is None or not found[1].is_file():
            raise Fault(404, "Not found")
        size = found[1].stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(wanted.group(1)) if wanted else 0
        if start > size:
            raise Fault(416, "Range not satisfiable")
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size - start))
        self.send_header("Accept-Ranges", "bytes")
        if not wanted:
            md5 = base64.b64encode(
                hashlib.md5(found[1].read_bytes(), usedforsecurity=False).digest()
            ).decode()
            self.send_header(
                "x-goog-hash", f"md5={md5}"
            )  # as Google's storage does, where Kaggle keeps its files
        self.send_header("ETag", f'"{found[1].stat().st_mtime_ns:x}-{size:x}"')
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        if self.command == "GET":
            with found[1].open("rb") as file:
                file.seek(start)
                shutil.copyfileobj(file, self.wfile)

    def _stream(self, handle: str, label: str) -> None:
        user = self.kaggle.user(self.headers.get("Authorization"))
        if user is None:
            raise Fault(401, "Unauthorized")
        kernel = self.kaggle.kernels.kernels.get(handle)
        if kernel is None or kernel.owner != user:
            raise Fault(403, "Permission 'kernels.get' was denied")
        number = (
            int(label[1:])
            if re.fullmatch(r"v[0-9]{1,9}", label)
            else len(kernel.versions)
            if kernel and not label
            else 0
        )
        version = self.kaggle.kernels.version(handle, number)
        if version is None:
            raise Fault(404, "Not found")
        if version.done.is_set():
            return self._send(
                200, version.log.text().encode(), {"Content-Type": "application/json"}
            )
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header(
            "Transfer-Encoding", "chunked"
        )  # a client that reads by the chunk gets each line as it comes
        self.end_headers()
        for piece in version.log.follow():
            self._chunk(f"data: {piece}\n\n".encode())
        self._chunk(b"data: END_OF_LOG\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _body(self) -> bytes:
        if hasattr(socket, "TCP_QUICKACK"):
            # Through a proxy the client keeps the body until its head is acknowledged, which Linux
            # would do after 40 ms.
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            announced = self.headers.get("Content-Length") or "0"
            if not re.fullmatch(r"[0-9]{1,12}", announced):
                self.close_connection = True  # where the next request begins cannot be known
                raise Fault(400, f"Invalid Content-Length: {announced[:40]!r}")
            return self.rfile.read(int(announced))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _fail(self, fault: Fault) -> None:
        self._json(fault.code, {"code": fault.code, "message": fault.message})

    def _json(self, code: int, value: Any) -> None:
        self._send(code, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _operation(path: str) -> str:
    """Return the method that a path calls, or the kind of what it leads to: "storage", "upload" or
    "log".
    """
    parts = urlsplit(path).path.strip("/").split("/")
    if "v1" in parts:
        return "log" if "stream" in parts else parts[-1]
    return parts[0]


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None  # it was refused for that
