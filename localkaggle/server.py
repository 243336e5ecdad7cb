"""Server: Kaggle's protocol on 127.0.0.1, for any of Kaggle's own clients."""

import fcntl
import shutil
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from werkzeug.exceptions import Forbidden, HTTPException, NotFound
from werkzeug.serving import make_server

from localkaggle.competitions import NAMES, Competition
from localkaggle.competitions.hosted import Hosted
from localkaggle.facts import Options
from localkaggle.faults import Faults
from localkaggle.services import state
from localkaggle.services.datasets import Datasets
from localkaggle.services.kernels import Kernels
from localkaggle.services.login import USER, Login
from localkaggle.services.models import Models
from localkaggle.services.state import State
from localkaggle.services.storage import Storage, Uploads
from localkaggle.services.submissions import Submissions
from localkaggle.web import Handler, Web


class LocalKaggle:
    """A Kaggle with one account; a context manager that serves and, at exit, ends all sessions.

    Args:
        folder: empty or new, or that of a local Kaggle that has ended or died, which it goes on
            with: credentials, kernels, datasets, submissions and the quota that is used. What was
            running then has ended with an error.
        competitions: slugs of embedded ones, each built on first use, or `Competition`s.
        port: of 127.0.0.1; 0 takes a free one; None takes the folder's last one, or a free one.
        datasets: {owner/slug: folder} that other users published; ready from the start.
        models: {owner/model/framework/variation/version: folder} that other users published.
        options: fields of `Options`.

    Attributes:
        options, facts: how it is set up, and behaves; facts may be changed meanwhile.
        folder: of the server, without links.
        competitions: that it hosts.
        state: keeps what changes.
        storage: of the files that are downloaded.
        uploads: the files that were sent.
        oauth: holds key and tokens of the account.
        journal, wire: as in `Web`.
        lock: is held while something changes.
        session_seconds: after how long a session is killed, by "TPU", "GPU" and "CPU"; may be
            changed meanwhile.

    Raises:
        FileExistsError: if the folder holds something else, or is in use.
        ValueError: if what is kept there cannot be read, or is of a competition that is not hosted.
        OSError: if the port is not free, or the folder cannot be written.
    """

    KEPT = ("last_port", "hosted")

    def __init__(
        self,
        folder: Path,
        *,
        competitions: Sequence[str | Competition] = NAMES,
        port: int | None = None,
        datasets: Mapping[str, Path] | None = None,
        models: Mapping[str, Path] | None = None,
        **options: Any,
    ) -> None:
        self.options = Options(**options)
        self.facts, self.session_seconds = self.options.facts, self.options.session_seconds
        self.folder = folder.resolve()
        self._lock_file = _claimed(self.folder)
        self.competitions = Hosted(self.folder / "competitions", competitions)
        self.state = State(self.folder)
        self.lock = self.state.lock
        self.storage = Storage(self.folder / "objects")
        self.uploads = Uploads(self.storage)
        self.datasets = Datasets(self)
        self.models = Models(self)
        self.kernels = Kernels(self)
        self.submissions = Submissions(self)
        self.oauth = Login()
        self.last_port, self.hosted = 0, list(self.competitions)
        self._restore()
        self.datasets.publish(datasets or {})
        self.models.publish(models or {})
        self.kernels.interrupt()
        self.submissions.interrupt()
        web = Web(self)
        self.journal, self.wire = web.journal, web.wire
        self.faults = Faults(web)
        # werkzeug itself would print that a port is not free, and exit.
        with socket.create_server(("127.0.0.1", self.last_port if port is None else port)) as plug:
            self.port = self.last_port = int(plug.getsockname()[1])
            self._server = make_server(
                *("127.0.0.1", self.port, self.faults),
                threaded=True,
                request_handler=Handler,
                fd=plug.fileno(),
            )
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.01,), daemon=True)
        self.hosted = list(self.competitions)
        self.state.save()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that lead any Kaggle client here, with this Kaggle's credentials.

        HOME is private: a token in the real one would win over these credentials and be sent.
        Nobody listens on the port of the https proxy, so a request to elsewhere fails at once.
        """
        home = self.folder / "home"
        for name in (".kaggle", "tmp"):
            (home / name).mkdir(parents=True, exist_ok=True)
        proxy, nowhere = f"http://127.0.0.1:{self.port}", "http://127.0.0.1:9"
        return {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "KAGGLE_USERNAME": USER,
            "KAGGLE_KEY": self.oauth.key,
            "KAGGLE_CONFIG_DIR": str(home / ".kaggle"),
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            **dict.fromkeys(("http_proxy", "HTTP_PROXY"), proxy),
            **dict.fromkeys(("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), nowhere),
            **dict.fromkeys(("no_proxy", "NO_PROXY"), ""),
        }

    def missing(self, service: str, is_own: bool) -> HTTPException:
        """Return the answer about something that is not there, or not this user's.

        Args:
            service: "kernels" or "datasets".
            is_own: whether it would be this user's own.
        """
        if is_own and self.facts.missing == "404":
            return NotFound("Not found")
        return Forbidden(f"Permission '{service}.get' was denied")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.faults.plan({})  # releases the requests that it keeps waiting
        self.kernels.close()
        self.submissions.close()
        self._server.shutdown()
        self._thread.join()  # which closes the port, so that a server can start there at once
        self._lock_file.close()

    def _restore(self) -> None:
        """Go on with what the folder holds, without its uploads and its reruns."""
        parts = (self, self.kernels, self.datasets, self.models, self.submissions, self.oauth)
        self.state.load({type(part).__name__: part for part in parts})
        if lost := sorted({*self.hosted} - {*self.competitions}):
            raise ValueError(
                f"{self.folder} is of a local Kaggle that hosts {lost[0]}; expected that to be"
                " hosted again, by the command that it was started with (`invoke serve --input` for"
                " a folder of your own), or a new folder"
            )
        shutil.rmtree(self.folder / "objects", ignore_errors=True)
        for path in self.folder.glob("sessions/rerun-*"):
            shutil.rmtree(path)


def _claimed(folder: Path) -> IO[str]:
    """Return the open lock of a folder that is new, empty, or of a local Kaggle.

    On a file system without locks it locks nothing.

    Raises:
        FileExistsError: if it is none, or another process serves it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / state.FILE
    if not kept.is_file():
        if any(folder.iterdir()):
            raise FileExistsError(
                f"{folder} is not empty, and no local Kaggle's; expected a new or empty folder, or"
                " one that a local Kaggle served from"
            )
        kept.write_text("{}")
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise FileExistsError(
            f"{folder} is in use by another local Kaggle; expected one that has ended"
        ) from error
    except OSError:
        pass  # no locks here
    return lock
