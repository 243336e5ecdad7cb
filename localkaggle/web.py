"""WSGI application that handles API calls, uploads, downloads and log streams.

It also acts as a proxy for http://localhost, so that the official client can be redirected to it
with environment variables alone.
"""

import errno
import importlib
import json
import re
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin

from werkzeug import exceptions
from werkzeug.exceptions import HTTPException, NotFound, Unauthorized
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler
from werkzeug.utils import send_file
from werkzeug.wrappers import Request, Response

from localkaggle.faults import Wire
from localkaggle.services import login
from localkaggle.services.protocol import Json

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from localkaggle.server import LocalKaggle

PIECE_BYTES = 1 << 16
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
READING = ("Get", "List", "Download", "Introspect", "Start")  # calls that only read
SERVICES = {
    "kernels.KernelsApiService": "kernels",
    "datasets.DatasetApiService": "datasets",
    "models.ModelApiService": "models",
    "blobs.BlobApiService": "uploads",
    "competitions.CompetitionApiService": "submissions",
    "security.OAuthService": "oauth",
    "users.AccountService": "oauth",
}
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
ROUTES = Map(
    [
        Rule("/v1/<service>/<method>", methods=["POST"], endpoint="_call"),
        Rule("/v1/kernels/logs/stream/<owner>/<slug>", methods=["GET"], endpoint="_follow"),
        Rule("/storage/<key>/<path:name>", methods=["GET"], endpoint="_download"),
        Rule("/upload/<token>", methods=["PUT"], endpoint="_upload"),
    ],
    merge_slashes=False,
)


class Call(NamedTuple):
    """A recorded API call.

    `asked` is the request's JSON body. It is None if it contains a token, or if the status code is
    400.
    """

    method: str
    asked: Any
    code: int


class Handler(WSGIRequestHandler):
    """A request handler that does not print a log."""

    # Headers and body are sent separately, so Nagle's algorithm would delay each response by 40 ms.
    disable_nagle_algorithm = True

    def log(self, type: str, message: str, *arguments: object) -> None:
        """Do nothing, because `Web.journal` records all calls."""

    def connection_dropped(
        self, error: BaseException, environ: "WSGIEnvironment | None" = None
    ) -> None:
        self.close_connection = True


class Web:
    """The WSGI application, which saves the state after each call that may change it.

    Attributes:
        wire: counts transferred bytes and breaks connections.
        journal: all calls so far. Each call is added before its response is sent.
    """

    def __init__(self, site: "LocalKaggle") -> None:
        self.wire = Wire()
        self.journal: list[Call] = []
        self._site = site

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        request = Request(environ)
        try:
            response = self._answered(request)
        except ConnectionError:
            raise  # the client disconnected, or `wire` broke the connection
        except Exception as error:
            response = self._refusal(error)
        if request.method == "POST":
            method, is_read = request.path.rpartition("/")[2], response.status_code != 400
            shown = is_read and method not in login.CALLS  # these contain tokens
            asked = request.get_json(force=True, silent=True) if shown else None
            self.journal.append(Call(method, asked, response.status_code))
        return response(environ, start_response)

    def _refusal(self, error: Exception) -> Response:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            self._site.state.disk_full = str(error)
            # Do not send status 507, because clients retry after 5xx errors.
            error = exceptions.BadRequest(f"The disk of the local Kaggle is full: {error}")
        if not isinstance(error, HTTPException):  # a bug in this server
            traceback.print_exc()
            error = exceptions.InternalServerError(f"Internal error: {type(error).__name__}")
        if error.response is not None:  # the error already has a response body
            return error.get_response()
        said = {"code": error.code, "message": error.description}
        return Response(json.dumps(said), error.code, mimetype="application/json")

    def _answered(self, request: Request) -> Response:
        try:
            path = request.path.removeprefix("/api")
            view, words = ROUTES.bind("localhost").match(path, request.method)
        except HTTPException as error:
            raise NotFound("Not found") from error
        if request.method == "HEAD":  # URLs are only signed for GET requests
            raise NotFound("Not found")
        answer: Response = getattr(self, view)(request, **words)
        return answer

    # Calls

    def _call(self, request: Request, service: str, method: str) -> Response:
        body = request.get_data()  # closing a connection with unread data would lose the response
        owner = getattr(self._site, SERVICES.get(service, ""), None)
        cls = _message(service, method) if owner is not None else None
        if cls is None or not hasattr(owner, method):
            raise NotFound(f"{service}/{method} is not implemented by the local Kaggle")
        try:
            asked = json.loads(body or b"{}")
            if unknown := asked.keys() - {field.json_name for field in cls._fields}:
                raise ValueError(f"unknown fields {sorted(unknown)}")
            message = cls.from_dict(asked)
        except UNREADABLE as error:
            raise exceptions.BadRequest(f"Malformed request: {error}") from error
        user = self._site.oauth.user(request.authorization)
        if user is None and method not in login.CALLS:
            raise Unauthorized("Unauthorized")
        with self._site.state.lock:
            answer: Json | Path = getattr(owner, method)(message, user)
            if not method.startswith(READING):
                self._site.state.save()
        base = request.host_url.rstrip("/")  # the client may use the proxy or connect directly
        if isinstance(answer, Path):
            location = base + self._site.storage.share(answer.name, answer)
            return Response(status=302, headers={"Location": location})
        for part in (answer, *answer.get("files", ())):
            for field in {"url", "createUrl"} & part.keys():
                part[field] = urljoin(base, part[field])
        said = {name: value for name, value in answer.items() if value is not None}
        return Response(json.dumps(said), mimetype="application/json")

    def _follow(self, request: Request, owner: str, slug: str) -> Response:
        user = self._site.oauth.user(request.authorization)
        if user is None:
            raise Unauthorized("Unauthorized")
        label = request.args.get("versionLabel")
        version = self._site.kernels.find(f"{owner}/{slug}", label, user)
        if version.done.is_set():
            return Response(version.log.text(), mimetype="application/json")

        def events() -> Iterator[str]:
            for piece in version.log.follow():
                yield f"data: {piece}\n\n"
            yield "data: END_OF_LOG\n\n"

        return Response(events(), content_type="text/event-stream")

    # Files

    def _upload(self, request: Request, token: str) -> Response:
        sent = iter(lambda: request.stream.read(PIECE_BYTES), b"")
        content_range = request.headers.get("Content-Range")
        pieces = self.wire.passing(sent, up=True)
        length = request.content_length or 0
        return self._site.uploads.receive(token, content_range, length, pieces)

    def _download(self, request: Request, key: str, name: str) -> Response:
        """Return a file or a part of it, as Google Cloud Storage does for Kaggle."""
        path = self._site.storage.find(key)
        stat = path.stat()
        response = send_file(
            path,
            request.environ,
            mimetype="application/octet-stream",
            etag=f"{stat.st_mtime_ns:x}-{stat.st_size:x}",
        )
        response.call_on_close(response.response.close)  # type: ignore[union-attr]
        response.response = self.wire.passing(response.response, up=False)  # type: ignore[arg-type]
        return response


@cache
def _message(service: str, method: str) -> Any:
    """Return kagglesdk's request class for a method, or None if kagglesdk does not define one.

    The class is defined in a module that is named after the service.
    """
    package, _, name = service.partition(".")
    module = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    types = importlib.import_module(f"kagglesdk.{package}.types.{module}")
    return getattr(types, f"Api{method}Request", getattr(types, f"{method}Request", None))
