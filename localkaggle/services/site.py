"""Site: what the services of one local Kaggle share."""

from dataclasses import dataclass
from pathlib import Path

from localkaggle.competitions.hosted import Hosted
from localkaggle.facts import Options
from localkaggle.services.state import State
from localkaggle.services.storage import Storage, Uploads


@dataclass(frozen=True)
class Site:
    """The parts of a local Kaggle that have no calls of their own, or that several services use.

    Attributes:
        folder: of the server.
        options: how it is set up, and how it behaves.
        competitions: that it hosts.
        state: keeps what changes.
        storage: of the files that are downloaded.
        uploads: the files that were sent.
    """

    folder: Path
    options: Options
    competitions: Hosted
    state: State
    storage: Storage
    uploads: Uploads
