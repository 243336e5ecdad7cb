"""What hours cost: of Kaggle's weekly quota, and in Colab's compute units, yen and dollars."""

import math
from dataclasses import dataclass

from workbench.plan.accelerators import Runtime

# An article paid 5,767 yen for the 500 units of Colab Pro+ (another says "about 10 yen"). 100 units
# are 9.99 dollars in "Pay As You Go" (assumed, not read on its page).
YEN_A_UNIT, USD_A_UNIT = 5767 / 500, 0.0999


@dataclass(frozen=True)
class Cost:
    """What a training takes of somebody's time and money; None where it is not known.

    Attributes:
        hours: of the runtime.
        sessions: that these hours take.
        weeks: whose quota they take, this week included.
        units, yen, usd: of Colab.
    """

    hours: float
    sessions: int | None
    weeks: int | None
    units: float | None
    yen: float | None
    usd: float | None


def of(
    runtime: Runtime, seconds: float, *, left: float | None = None,
    session_hours: float | None = None,
) -> Cost:  # fmt: skip
    """Return what so many seconds cost.

    Args:
        runtime: where.
        seconds: of training, with what surrounds it.
        left: hours of quota that are left this week, as Kaggle says; None: all of them.
        session_hours: after which the run ends itself; None: it does not.

    >>> from workbench.plan.accelerators import RUNTIMES
    >>> [round(of(RUNTIMES[name], 881).units, 2) for name in ("colab-t4", "colab-a100")]
    [0.48, 3.2]
    """
    hours = seconds / 3600
    units = None if runtime.units is None else runtime.units * hours
    a_week = runtime.weekly_hours
    # The config's limit is for Kaggle.
    ends = [one for one in (runtime.session_hours, a_week and session_hours) if one]
    later = hours - (a_week if left is None else left) if a_week else 0.0
    return Cost(
        hours=hours,
        sessions=math.ceil(hours / min(ends)) if ends else None,
        weeks=None if not a_week else 1 + max(math.ceil(later / a_week), 0),
        units=units,
        yen=None if units is None else YEN_A_UNIT * units,
        usd=None if units is None else USD_A_UNIT * units,
    )
