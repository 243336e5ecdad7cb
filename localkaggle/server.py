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
    """A Kaggle with one account; a context manager that serves, and ends all sessions at exit.

    Args:
        folder: a new or empty folder, or that of an earlier local Kaggle, from which this one
            resumes: credentials, kernels, datasets, submissions and the used quota. What was
            running then has ended with an error.
        competitions: slugs of embedded ones, each built on first use, or `Competition`s.
        port: on 127.0.0.1; 0: a free one; None: the last one of the folder, or a free one.
        datasets: {owner/slug: folder} that other users published.
        models: {owner/model/framework/variation/version: folder} that other users published.
        options: fields of `Options`.

    Attributes:
        options, facts: how it is set up, and how it behaves; tests replace `facts`.
        folder: the folder, without links.
        competitions: the hosted competitions.
        state: saves what changes.
        storage: the files that can be downloaded.
        uploads: the files that were uploaded.
        oauth: the key and the tokens of the account.
        journal, wire: as in `Web`.
        session_seconds: as in `Options`; tests change it.

    Raises:
        FileExistsError: if the folder holds something else, or is in use.
        ValueError: if its state cannot be read, or has a competition that is not hosted now.
        OSError: if the port is in use, or the folder cannot be written.
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
        # Bound here, since werkzeug exits if a port is in use.
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
        """Environment variables that lead any Kaggle client here, with its credentials.

        HOME is private: a token in the real one would override these credentials and be sent.
        Nothing listens on the port of the https proxy, so requests to other hosts fail at once.
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
        """Return the answer about something that does not exist, or is private to another user.

        Args:
            service: "kernels" or "datasets".
            is_own: whether it would belong to this user.
        """
        if is_own and self.facts.missing == "404":
            return NotFound("Not found")
        return Forbidden(f"Permission '{service}.get' was denied")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.faults.clear()  # releases the requests that wait
        self.kernels.close()
        self.submissions.close()
        self._server.shutdown()
        self._thread.join()  # this closes the port, so that another server can use it at once
        self._lock_file.close()

    def _restore(self) -> None:
        """Resume from the folder, without its uploads and reruns."""
        parts = (self, self.kernels, self.datasets, self.models, self.submissions, self.oauth)
        self.state.load({type(part).__name__: part for part in parts})
        if lost := sorted({*self.hosted} - {*self.competitions}):
            raise ValueError(
                f"the local Kaggle in {self.folder} hosts {lost[0]}; expected a new folder, or the"
                " command that started it before (`invoke serve --input` for a folder of your own)"
            )
        shutil.rmtree(self.folder / "objects", ignore_errors=True)
        for path in self.folder.glob("sessions/rerun-*"):
            shutil.rmtree(path)


def _claimed(folder: Path) -> IO[str]:
    """Lock a folder that is new, empty, or of a local Kaggle, and return the open lock file.

    A file system without locks is served without one.

    Raises:
        FileExistsError: if it holds something else, or another process serves it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / state.FILE
    if not kept.is_file():
        if any(folder.iterdir()):
            raise FileExistsError(
                f"{folder} is not empty; expected a new or empty folder, or one of a local Kaggle"
            )
        kept.write_text("{}")
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise FileExistsError(
            f"{folder} is in use by another local Kaggle; expected that one to be stopped"
        ) from error
    except OSError:
        pass  # the file system has no locks
    return lock
