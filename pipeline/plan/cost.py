"""What hours cost: of Kaggle's weekly quota, and in Colab's compute units, yen and dollars."""

import math
from dataclasses import dataclass

from pipeline.plan.accelerators import Runtime

# 100 compute units are 9.99 dollars in Colab's "Pay As You Go" (assumed, not read on its page); an
# article gives about 10 yen a unit, and 5,767 yen for the 500 units of Pro+.
YEN_A_UNIT, USD_A_UNIT = 10.0, 0.0999
CADENCE = 0.5  # hours between checkpoints at most: so much is lost at worst


@dataclass(frozen=True)
class Cost:
    """What a training takes of somebody's time and money; None where it is not known.

    Attributes:
        hours: of the runtime.
        sessions: that these hours take.
        weeks: of quota that they take, at `weekly` hours a week.
        units, yen, usd: of Colab.
    """

    hours: float
    sessions: int | None
    weeks: int | None
    units: float | None
    yen: float | None
    usd: float | None


def of(runtime: Runtime, seconds: float, *, weekly: float | None = None) -> Cost:
    """Return what so many seconds cost.

    Args:
        runtime: where.
        seconds: of training, with what surrounds it.
        weekly: hours of quota a week, if they are known better than `runtime` knows them.
    """
    hours = seconds / 3600
    units = None if runtime.units is None else compute_units(runtime.units, hours)
    a_week = runtime.weekly_hours if weekly is None else weekly
    return Cost(
        hours=hours,
        sessions=None
        if runtime.session_hours is None
        else math.ceil(hours / runtime.session_hours),
        weeks=None if not a_week else math.ceil(hours / a_week),
        units=units,
        yen=None if units is None else YEN_A_UNIT * units,
        usd=None if units is None else USD_A_UNIT * units,
    )


def compute_units(rate: float, hours: float) -> float:
    """Return compute units.

    Args:
        rate: an hour.
        hours: of use.

    >>> [round(compute_units(*one), 2) for one in ((1.96, 881 / 3600), (2.05, 402 / 3600))]
    [0.48, 0.23]
    """
    return rate * hours


def hours_of(units: float, rate: float) -> float:
    """Return the hours that so many compute units last.

    >>> round(hours_of(500, 13.06))
    38
    """
    return units / rate


def price_an_hour(price: float, units: float, rate: float) -> float:
    """Return what an hour costs where so many compute units are sold at a price.

    >>> round(price_an_hour(5767, 500, 13.06), -1)
    150.0
    """
    return price / units * rate
