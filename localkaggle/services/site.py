"""Site: what the services of one local Kaggle share."""

from pathlib import Path

from werkzeug.exceptions import Forbidden, HTTPException, NotFound

from localkaggle.competitions.hosted import Hosted
from localkaggle.facts import Facts, Options
from localkaggle.services.state import State
from localkaggle.services.storage import Storage, Uploads


class Site:
    """The parts of a local Kaggle that have no calls of their own, or that several services use.

    Attributes:
        folder: of the server.
        options: how it is set up.
        facts: how it behaves; may be changed meanwhile.
        competitions: that it hosts.
        state: keeps what changes.
        storage: of the files that are downloaded.
        uploads: the files that were sent.
    """

    folder: Path
    options: Options
    facts: Facts
    competitions: Hosted
    state: State
    storage: Storage
    uploads: Uploads

    def missing(self, service: str, is_own: bool) -> HTTPException:
        """Return the answer about something that is not there, or not this user's.

        Args:
            service: "kernels" or "datasets".
            is_own: whether it would be this user's own.
        """
        if is_own and self.facts.missing == "404":
            return NotFound("Not found")
        return Forbidden(f"Permission '{service}.get' was denied")
