"""Which fields of a config may change when a run resumes."""

from typing import Any

# Nothing that training reads. The images themselves are compared by content.
FREE = {
    "handoff",
    "metric",  # its effect on the labels, their log, is in the fingerprint of the data
    "progress_seconds",
    "checkpoint_seconds",
    "session_hours",
    "stall_seconds",
    "micro_batch",
    "steps_per_call",
    "views",
    "data.sample_submission",
} | {
    f"data.{part}_{form}"
    for part in ("train", "test")
    for form in ("csv", "images", "records", "array")
}


def changes(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return the differences of two configs that training depends on, a text for each value.

    >>> changes({"batch": 8, "data": {"flip": True}}, {"batch": 6, "data": {"flip": True}})
    ['batch: 8 then, 6 now']
    """
    before, now = _flat(theirs), _flat(ours)
    return [
        f"{name}: {before.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted((before.keys() | now.keys()) - FREE)
        if before.get(name) != now.get(name)
    ]


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config's values by full name, for example "data.height"."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat
