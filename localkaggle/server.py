"""The local Kaggle server, which works with all of Kaggle's official clients."""

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
    """A Kaggle server with a single account.

    Use it as a context manager, which starts the server on entry, and stops the server and all
    sessions on exit.

    Args:
        folder: a new or empty folder, or the folder of an earlier local Kaggle. In the latter case,
            its credentials, kernels, datasets, submissions and quota are restored. Its unfinished
            runs and submissions are marked as failed.
        competitions: a list of `Competition`s and slugs. Slugs are names of embedded competitions,
            which are built when they are first used.
        port: port on 127.0.0.1, or 0 for any free port. If None, the server uses the port that was
            last used with the folder. For a new folder, it uses any free port.
        datasets: other users' datasets, as {owner/slug: folder}.
        models: other users' models, as {owner/model/framework/variation/version: folder}.
        options: fields of `Options`.

    Attributes:
        facts, session_seconds: see `Options`. Tests change them.
        oauth: the account's key and tokens.
        journal, wire: see `Web`.

    Raises:
        FileExistsError: if the folder contains other files or is in use.
        ValueError: if the saved state is invalid, or if it contains a competition that is no longer
            hosted.
        OSError: if the port is in use or the folder is not writable.
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
        # Bind the socket here, because werkzeug exits the process if the port is in use.
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
        """Environment variables that make Kaggle clients connect to this server.

        HOME is a private folder, because clients would prefer a token in the user's home to these
        credentials. The HTTPS proxy is a port on which no server listens, so requests to other
        hosts fail immediately.
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
        """Return the error for an item that does not exist, or belongs to another user.

        `service` is "kernels" or "datasets".
        """
        if is_own and self.facts.missing == "404":
            return NotFound("Not found")
        return Forbidden(f"Permission '{service}.get' was denied")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.faults.clear()  # releases requests that are kept waiting
        self.kernels.close()
        self.submissions.close()
        self._server.shutdown()
        self._thread.join()  # closes the port, so that another server can use it immediately
        self._lock_file.close()

    def _restore(self) -> None:
        # Uploads and reruns are not restored.
        parts = (self, self.kernels, self.datasets, self.models, self.submissions, self.oauth)
        self.state.load({type(part).__name__: part for part in parts})
        if lost := sorted({*self.hosted} - {*self.competitions}):
            raise ValueError(
                f"the local Kaggle in {self.folder} hosts the competition {lost[0]}; use another"
                " folder, or start it with the same command as before (`invoke serve --input` if it"
                " hosted your own folder)"
            )
        shutil.rmtree(self.folder / "objects", ignore_errors=True)
        for path in self.folder.glob("sessions/rerun-*"):
            shutil.rmtree(path)


def _claimed(folder: Path) -> IO[str]:
    """Lock a folder, and return the open lock file.

    The folder must be new, empty or from an earlier local Kaggle. If the file system does not
    support locks, the folder is not locked.

    Raises:
        FileExistsError: if the folder contains other files or is used by another process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / state.FILE
    if not kept.is_file():
        if any(folder.iterdir()):
            raise FileExistsError(
                f"{folder} is not empty; expected a new, empty or earlier local Kaggle folder"
            )
        kept.write_text("{}")
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise FileExistsError(
            f"{folder} is in use by another local Kaggle; stop that one or use another folder"
        ) from error
    except OSError:
        pass  # the file system does not support locks
    return lock
