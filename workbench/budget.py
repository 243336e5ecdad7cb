"""Parse and format durations such as 2h, 8m or 90s."""

import re

from pipeline.errors import ConfigError

UNITS = {"h": 3600, "m": 60, "s": 1}
LEAST, MOST = 30, 240 * 3600  # seconds


def seconds(text: str) -> float:
    """Parse the value of the --budget option.

    Raises:
        ConfigError: if it is not a valid duration.

    >>> seconds("1.5h"), seconds("90s")
    (5400.0, 90.0)
    """
    given = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([hms])", text)
    found = float(given[1]) * UNITS[given[2]] if given else 0.0
    if not LEAST <= found <= MOST:
        raise ConfigError(
            f"--budget {text[:40]}: expected a duration from {LEAST}s to {MOST // 3600}h.\n"
            "For example: --budget 8m"
        )
    return found


def shown(seconds: float) -> str:
    """Format a duration in seconds.

    >>> shown(0.52), shown(45.2), shown(480), shown(7200), shown(4000 * 3600)
    ('0.5 s', '45 s', '8 min', '2 h', '4,000 h')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds:.1g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.2g} h" if hours < 99.5 else f"{hours:,.0f} h"
