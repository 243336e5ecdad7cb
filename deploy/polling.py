"""When to ask again for what Kaggle does in its own time, and for how long."""

import time

from deploy.connection import Pace
from deploy.errors import DeadlinePassed


class Polls:
    """Polls whose pauses grow while the answers stay the same.

    Args:
        end: until when to poll, by `time.monotonic`.

    Attributes:
        pause: seconds until the next poll.
        count: of the pauses so far.
        changed_at: when the last change was seen, by the same clock.
    """

    def __init__(self, pace: Pace, end: float) -> None:
        self.pause, self.count = pace.first, 0
        self.changed_at = time.monotonic()
        self._pace, self._end, self._state = pace, end, ""

    def changed(self, state: str) -> bool:
        """Return whether this state is a new one: then the next poll comes soon."""
        if state == self._state:
            return False
        self._state, self.pause, self.changed_at = state, self._pace.first, time.monotonic()
        return True

    def wait(self, late: str) -> None:
        """Wait until the next poll.

        Raises:
            DeadlinePassed: with the message `late`, if that would be after the end.
        """
        if time.monotonic() + self.pause > self._end:
            raise DeadlinePassed(late)
        time.sleep(self.pause)
        self.pause = min(self.pause * 1.5, self._pace.most)
        self.count += 1
