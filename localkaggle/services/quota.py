"""Quota: the accelerator time of a week, and whether one more session may have some of it."""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from localkaggle.sessions.machine_shapes import SESSIONS, WEEKLY_SECONDS, machine

if TYPE_CHECKING:
    from localkaggle.services.kernels import Version

SECONDS = 9 * 3600.0  # of a session that was pushed without a timeout


class Quota:
    """The accelerator time of one account.

    Args:
        versions: returns all versions of all kernels.
        reserves: whether a session takes as much of it as its timeout says, until it ends.
        pays: whether the account pays for what it uses beyond it.

    Attributes:
        used_seconds: this week, by accelerator, of the sessions that have ended.
    """

    def __init__(
        self, versions: Callable[[], Iterable["Version"]], *, reserves: bool, pays: bool
    ) -> None:
        self.used_seconds = dict.fromkeys(WEEKLY_SECONDS, 0.0)
        self._versions, self._reserves, self._pays = versions, reserves, pays

    def refusal(self, kind: str, seconds: float | None) -> str:
        """Return why no further session of this kind may start; "": it may.

        Args:
            seconds: the timeout of the session.
        """
        active = self._active(kind)
        if len(active) >= SESSIONS[kind]:
            return f"Maximum batch {kind} session count of {SESSIONS[kind]} reached."
        quota = WEEKLY_SECONDS.get(kind)
        if quota is None or self._pays:
            return ""
        left = quota - self.used_seconds[kind]
        if self._reserves:
            left -= sum(map(_asked, active)) + (seconds or SECONDS)
        if left < 0 or (left == 0 and not self._reserves):
            return f"Maximum weekly {kind} quota of {quota / 3600:.2f} hours reached."
        return ""

    def statistics(self) -> dict[str, Any]:
        """Return the week's quota; durations as text, since the SDK's own writer loses days."""
        answer: dict[str, Any] = {"quotaRefreshTime": "2030-01-05T00:00:00Z"}
        for kind, total in WEEKLY_SECONDS.items():
            active = self._active(kind)
            running = [_elapsed(version) for version in active]
            said = {"timeUsed": self.used_seconds[kind] + sum(running), "totalTimeAllowed": total}
            if self._reserves:
                said["timeReserved"] = sum(map(_asked, active)) - sum(running)
            answer[f"{kind.lower()}Quota"] = {
                "isPayToScaleEnabled": self._pays,
                **{name: f"{max(seconds, 0):.0f}s" for name, seconds in said.items()},
            }
        return answer

    def _active(self, kind: str) -> list["Version"]:
        return [
            version
            for version in self._versions()
            if not version.done.is_set() and machine(version.shape) == kind
        ]


def _asked(version: "Version") -> float:
    return float(version.request.session_timeout_seconds or SECONDS)


def _elapsed(version: "Version") -> float:
    return time.time() - version.began if version.status == "RUNNING" else 0.0
