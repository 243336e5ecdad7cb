"""Changes: in what the config of a run that goes on may differ from the one that it began with."""

from typing import Any

# What a config may say otherwise when a run goes on: nothing that training reads. The images
# themselves are compared by content.
FREE = {
    "handoff",
    "metric",  # its part in the labels, their log, is in the fingerprint of the data
    "progress_seconds",
    "checkpoint_seconds",
    "session_hours",
    "stall_seconds",
    "micro_batch",
    "steps_per_call",
    "views",
} | {
    f"data.{name}"
    for name in (
        "train_csv",
        "test_csv",
        "train_images",
        "test_images",
        "train_records",
        "test_records",
        "train_array",
        "test_array",
        "sample_submission",
    )
}


def changes(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return in what two configs differ that training depends on, a text for each value."""
    before, now = _flat(theirs), _flat(ours)
    return [
        f"{name}: {before.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted((before.keys() | now.keys()) - FREE)
        if before.get(name) != now.get(name)
    ]


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config's values by full name, for example "data.height"."""
    flat = {}
    for name, value in config.items():
        flat.update(
            {f"{name}.{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return flat
