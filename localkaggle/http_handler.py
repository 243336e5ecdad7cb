"""HTTP handler: answers a request, which is a call, an upload, a download or a log to follow."""

import contextlib
import email.utils
import errno
import io
import json
import re
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, unquote, urlsplit

from localkaggle.faults import Faults
from localkaggle.services.kernels import Kernels
from localkaggle.services.oauth import CALLS, OAuth
from localkaggle.services.protocol import BASE, ApiError
from localkaggle.services.storage import AddressExpired, Redirect, Storage
from localkaggle.services.uploads import Uploads
from localkaggle.wire import Wire

OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
PIECE_BYTES = 1 << 16
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Account(Protocol):
    """What the handler asks of the server (`localkaggle.server.LocalKaggle`)."""

    faults: Faults
    journal: list[tuple[str, Any, int, Any]]
    lock: threading.RLock
    storage: Storage
    kernels: Kernels
    uploads: Uploads
    oauth: OAuth
    wire: Wire
    disk_full: str

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""

    def user(self, header: str | None) -> str | None:
        """Return the user whose credentials the Authorization header holds, or None."""

    def dispatch(self, service: str, method: str, body: bytes, authorization: str | None) -> Any:
        """Answer one call of a service."""


class Handler(BaseHTTPRequestHandler):
    """Answers one connection. `kaggle` does the rest."""

    protocol_version = "HTTP/1.1"
    # Head and body are written apart; with Nagle's algorithm each answer waits 40 ms for an ACK.
    disable_nagle_algorithm = True

    def __init__(self, kaggle: Account, *arguments: Any) -> None:
        self.kaggle = kaggle
        self.moved = 0  # bytes of files on this connection
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing; `LocalKaggle.journal` records the calls."""

    def handle(self) -> None:
        """Answer until the connection ends, even where the client ends it early."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            super().handle()

    def handle_one(self) -> None:
        """Answer any request, or let it fail as planned."""
        faults, operation = self.kaggle.faults, _operation(self.path)
        planned = faults.take(operation)
        if planned is None:
            return self._answer()
        buffer, connection, close = io.BytesIO(), self.wfile, self.close_connection
        self.wfile = buffer

        def answer() -> bytes:
            self._answer()
            return buffer.getvalue()

        try:
            usable = faults.strike(*planned, operation, answer, self._skip_body, connection.write)
            connection.flush()
        finally:
            self.wfile = connection
        self.close_connection = self.close_connection or close or not usable

    def _skip_body(self) -> None:
        """Read what the client sends, for a request that is not answered."""
        with contextlib.suppress(ApiError):
            for _ in self._pieces():
                pass

    def _answer(self) -> None:
        address = urlsplit(self.path)
        if (other := self._other_name(address.netloc)) is not None:
            self.close_connection = True  # its body stays unread
            where = f"it leads nowhere else, and not to {other or 'an address without a name'}"
            return self._fail(ApiError(403, f"This is a Kaggle on 127.0.0.1; {where}"))
        path = re.sub(r"^/api(?=/v1/)", "", unquote(address.path))
        call = re.fullmatch(r"/v1/([a-z]+\.[A-Za-z]+)/([A-Za-z]+)", path)
        log = re.fullmatch(r"/v1/kernels/logs/stream/([^/]+/[^/]+)", path)
        try:
            if path.startswith("/upload/") and self.command == "PUT":
                return self._upload(path.split("/")[2])
            body = self._body()
            # An address is signed for GET alone: to HEAD the storage answers 404.
            if path.startswith("/storage/") and self.command == "GET":
                return self._download(path.split("/")[2])
            if path == "/v1/oauth2/authorize" and self.command == "GET":
                return self._authorize(parse_qs(address.query).get("code_challenge", [""])[0])
            if log and self.command == "GET":
                label = parse_qs(address.query).get("versionLabel", [""])[0]
                return self._stream(log[1], label)
            if call and self.command == "POST":
                return self._call(call[1], call[2], body)
            raise ApiError(404, "Not found")
        except ApiError as error:
            return self._fail(error)
        except AddressExpired:
            text = "<Error><Code>ExpiredToken</Code><Message>Invalid argument.</Message></Error>"
            return self._send(400, text.encode(), {"Content-Type": "application/xml"})
        except ConnectionError:
            self.close_connection = True  # the client has gone, or the wire broke
        except Exception as error:
            self.close_connection = True
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                self.kaggle.disk_full = str(error)
                # Not 507: clients ask again after a 5xx.
                return self._fail(ApiError(400, f"This Kaggle's disk is full: {error}"))
            # An error of this server: answered as by the site, and printed to be fixed.
            traceback.print_exc()
            return self._fail(ApiError(500, f"Internal error: {type(error).__name__}"))

    do_GET = do_POST = do_PUT = do_HEAD = handle_one

    def _other_name(self, asked: str) -> str | None:
        """Return the name that a request asks for if it is none of this server's; else None.

        A page in a browser may call this port by a name of its own. Through the proxy a request
        names http://localhost.

        Args:
            asked: the name and port of an absolute address; "": there is none.
        """
        own = {f"{name}:{self.kaggle.port}" for name in OWN_NAMES}
        names = [self.headers.get("Host", ""), asked] if asked else [self.headers.get("Host", "")]
        allowed = own | set(OWN_NAMES) if asked else own
        return next((name for name in names if name.lower() not in allowed), None)

    def _call(self, service: str, method: str, body: bytes) -> None:
        """Dispatch a call, record it, and only then answer: the journal has it first."""
        location = ""
        code, answer = 500, None  # where dispatching raises anything else
        try:
            answer = self.kaggle.dispatch(service, method, body, self.headers.get("Authorization"))
            code = 200
        except Redirect as redirect:
            code = 302
            name = self.kaggle.storage.objects[redirect.key].name
            location = self._address(redirect.key, quote(name))
        except ApiError as error:
            code, answer = error.code, error.message
            raise
        finally:
            hidden = method in CALLS  # tokens are credentials, and are not recorded
            kept = (None, None) if hidden else (_parsed(body), answer)
            self.kaggle.journal.append((method, kept[0], code, kept[1]))
        if location:
            self._send(302, b"", {"Location": location})
        else:
            self._json(200, self._with_addresses(answer))

    def _authorize(self, challenge: str) -> None:
        """Ask for user name and key, as a browser does, and show the code that the client wants."""
        if self.kaggle.user(self.headers.get("Authorization")) is None:
            return self._send(401, b"", {"WWW-Authenticate": 'Basic realm="Kaggle"'})
        code = self.kaggle.oauth.authorize(challenge)
        self._send(200, f"{code}\n".encode(), {"Content-Type": "text/plain"})

    def _with_addresses(self, answer: Any) -> Any:
        """Turn the keys and addresses in an answer into ones that this client can reach."""
        if isinstance(answer, dict):
            known = self.kaggle.storage.objects
            for file in answer.get("files") or []:
                if isinstance(file, dict) and str(file.get("url")) in known:
                    file["url"] = self._address(file["url"], "file")
            if str(answer.get("createUrl", "")).startswith(BASE):
                answer["createUrl"] = self._base() + answer["createUrl"].removeprefix(BASE)
        return answer

    def _address(self, key: str, name: str) -> str:
        return f"{self._base()}/storage/{key}/{name}?X-Goog-Signature=local"

    def _base(self) -> str:
        """Return this server's address as this client sees it: through the proxy, or directly."""
        if urlsplit(self.path).netloc:
            return BASE
        return f"http://{self.headers.get('Host', f'127.0.0.1:{self.kaggle.port}')}"

    def _upload(self, token: str) -> None:
        length, body = self._announced(), self._pieces()
        if length is None:
            whole = b"".join(body)  # it says only at its end how long it is
            length, body = len(whole), iter([whole])
        pieces = self._over_the_wire(body)
        content_range = self.headers.get("Content-Range")
        code, headers = self.kaggle.uploads.receive(token, content_range, length, pieces)
        for _ in pieces:
            pass  # of what was refused: the next request begins behind it
        self._send(code, b"", headers)

    def _over_the_wire(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Count what is uploaded, and end it where the wire breaks."""
        for piece in pieces:
            size = self.kaggle.wire.left(self.moved, len(piece))
            self.moved += size
            self.kaggle.wire.count(up=size)
            if size:
                yield piece[:size]
            if size < len(piece):
                raise ConnectionResetError("the wire broke")

    def _download(self, key: str) -> None:
        """Answer with a file or the rest of it, as Google's storage does for Kaggle."""
        path = self.kaggle.storage.find(key)
        stat = path.stat()
        size, tag = stat.st_size, f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
        changed = email.utils.formatdate(int(stat.st_mtime), usegmt=True)
        part = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if part and self.headers.get("If-Range", tag) not in (tag, changed):
            part = None  # it is another file by now, and is sent whole
        start = int(part[1]) if part else 0
        if part and start >= size:
            return self._send(416, b"", {"Content-Range": f"bytes */{size}"})
        self.send_response(206 if part else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size - start))
        self.send_header("Accept-Ranges", "bytes")
        # Of the whole file, whatever part of it is sent.
        self.send_header("x-goog-hash", f"md5={self.kaggle.storage.md5(path)}")
        self.send_header("ETag", tag)
        self.send_header("Last-Modified", changed)
        if part:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        self._send_file(path, start)

    def _send_file(self, path: Path, start: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            while piece := file.read(PIECE_BYTES):
                size = self.kaggle.wire.left(self.moved, len(piece))
                self.wfile.write(piece[:size])
                self.moved += size
                self.kaggle.wire.count(down=size)
                if size < len(piece):
                    raise ConnectionResetError("the wire broke")

    def _stream(self, handle: str, label: str) -> None:
        """Answer with the log of an ended session, or follow that of a running one."""
        user = self.kaggle.user(self.headers.get("Authorization"))
        if user is None:
            raise ApiError(401, "Unauthorized")
        _, version = self.kaggle.kernels.find(handle, label, user)
        if version.done.is_set():
            body = version.log.text().encode()
            return self._send(200, body, {"Content-Type": "application/json"})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        # A client that reads by the chunk gets each line as it comes.
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in version.log.follow():
            self._chunk(f"data: {piece}\n\n".encode())
        self._chunk(b"data: END_OF_LOG\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _body(self) -> bytes:
        return b"".join(self._pieces())

    def _announced(self) -> int | None:
        """Return how many bytes the client says that it sends; None: it sends them in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return None
        announced = self.headers.get("Content-Length") or "0"
        if not re.fullmatch(r"[0-9]{1,12}", announced):
            self.close_connection = True  # where the next request begins cannot be known
            raise ApiError(400, f"Invalid Content-Length: {announced[:40]!r}")
        return int(announced)

    def _pieces(self) -> Iterator[bytes]:
        """Yield what the client sends as it comes. Raises `ConnectionError` if it goes away."""
        if hasattr(socket, "TCP_QUICKACK"):
            # A client behind a proxy sends the body once its head is acknowledged; Linux would do
            # that after 40 ms.
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        left = self._announced()
        if left is None:
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        while left:
            piece = self.rfile.read(min(left, PIECE_BYTES))
            if not piece:
                raise ConnectionResetError("the client has gone")
            left -= len(piece)
            yield piece

    def _fail(self, error: ApiError) -> None:
        self._json(error.code, {"code": error.code, "message": error.message})

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
    """Return the method that a path calls, or "storage", "upload" or "log"."""
    parts = urlsplit(path).path.strip("/").split("/")
    if "v1" in parts:
        return "log" if "stream" in parts else parts[-1]
    return parts[0]


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None  # it was refused for that
