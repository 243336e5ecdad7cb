"""Read complete training runs from their manifests, and compare each run with its parent run.

Each run becomes a `Row`. Scores from Kaggle are added later.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from formats import checksums, npz
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import metrics

Row = Mapping[str, Any]
"""The details of a training run, where unknown values are None.

`number` is the run's number in the table, and `parent` is the number of the run that it is compared
with. `changes` maps each field that differs to its values in the parent and in this run. `run` has
the form owner/slug/version, `place` is where it ran, and `when` is in UTC. `run_id`, `folder`,
`competition`, `config`, `commit`, `folds`, `metric` and `manifest` describe the run in more detail.
The scores are `baseline`, `local`, `hidden` (from a rehearsal), `public` and `private`. Some scores
have a standard error, for example `local_error`. `quota_hours` and `minutes` are durations.
"""
MANIFEST = Path("artifact", "manifest.json")
NO_CHANGE = ("name", "baseline")  # fields that do not affect training
SCORES = ("local", "hidden", "public", "private")
RESAMPLES = 200


def read(folder: Path) -> dict[str, Any]:
    """Return the details of a training run as a `Row`.

    Raises:
        ConfigError: if the folder has no artifact from this version of the project.
    """
    path = folder / MANIFEST
    try:
        manifest = checksums.opened(path.read_bytes())
        config, metric, commit = manifest["config"], manifest["metric"], manifest["git_commit"]
        day, clock = manifest["run_id"].split("-")[-3:-1]
        seconds = manifest["seconds"]["total"] + manifest["earlier_seconds"]
        return {
            "run": None,
            "run_id": manifest["run_id"],
            "folder": str(folder),
            "place": folder.resolve().name,
            "when": f"{day[:4]}-{day[4:6]}-{day[6:]} {clock[:2]}:{clock[2:4]}",
            "competition": config["competition"],
            "config": config["name"],
            "commit": f"{commit[:8]}{'+' * manifest['git_dirty']}" if commit else None,
            "folds": config["folds"] or 1,
            "metric": metric,
            "baseline": (manifest["baseline"] or {}).get("score"),
            "local": manifest["metrics"].get(f"validation_{metric}"),
            "local_error": manifest["error"],
            **dict.fromkeys(("hidden", "hidden_error", "public", "private", "quota_hours")),
            "minutes": seconds / 60,
            "manifest": manifest,
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a manifest of this version: {type(error).__name__}:"
            f" {str(error)[:200]}.\nPass the folder of a complete run, which is the --output of"
            " `python -m pipeline train` or a folder created by `invoke pull`."
        ) from error


def in_order(found: Sequence[Row]) -> list[Row]:
    """Sort runs from oldest to newest, and add their numbers, parents and changes.

    A run's parent is the run that supplied its initial weights or pseudo-labels, or else the
    previous run.
    """
    done, numbers = list[Row](), dict[str, int]()
    for number, row in enumerate(sorted(found, key=_began), 1):
        fields = (row["manifest"].get(name) or {} for name in ("init_from", "pseudo_labels"))
        first = next((each["run_id"] for each in fields if "run_id" in each), "")
        parent = numbers.get(first, number - 1) or None
        changes = differences(done[parent - 1], row) if parent else {}
        done.append({"number": number, **row, "parent": parent, "changes": changes})
        numbers[row["run_id"]] = number
    return done


def _began(row: Row) -> tuple[str, str, str]:
    day, clock = row["run_id"].split("-")[-3:-1]
    return day, clock, row["run_id"]


def differences(one: Row, other: Row) -> dict[str, tuple[Any, Any]]:
    first, second = (
        _flat({**row["manifest"]["config"], **dict.fromkeys(NO_CHANGE)})
        | {"custom code": row["manifest"]["custom_code"][:8]}
        for row in (one, other)
    )
    pairs = {name: (first.get(name), second.get(name)) for name in first | second}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict[str, Any]()
    for name, value in config.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{key}".rstrip("."): one for key, one in inner.items()}
    return flat


def in_words(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Format changes for display.

    >>> in_words({"epochs": (2, 4), "data.white": (None, 4095)})
    'epochs 2 → 4, data.white – → 4095'
    """
    return ", ".join(f"{name} {shown(one)} → {shown(two)}" for name, (one, two) in changes.items())


def shown(value: Any, most: int = 40) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return "–" if value in (None, "") else text if len(text) <= most else f"{text[: most - 1]}…"


def score_differences(one: Row, other: Row) -> dict[str, tuple[float, float | None]]:
    """For each score, return the second value minus the first, and its standard error.

    Scores that are unknown or that use different metrics are omitted.
    """
    found = dict[str, tuple[float, float | None]]()
    for name in SCORES:
        first, second = one[name], other[name]
        if first is not None and second is not None:
            errors = [row.get(f"{name}_error") for row in (one, other)]
            error = None if None in errors else math.hypot(*filter(None, errors))
            found[name] = second - first, error
    if one["metric"] != other["metric"]:
        for name in ("local", "hidden"):
            found.pop(name, None)
    elif "local" in found and (paired := _paired_error(one, other)) is not None:
        found["local"] = found["local"][0], paired
    return found


def _paired_error(one: Row, other: Row) -> float | None:
    """Estimate the standard error of the difference by resampling the rows that both runs held out.

    Since both scores use the same rows, this error is smaller than the error for independent rows.
    The result is None if the runs held out different rows, if the metric is custom, or if a run has
    thresholds or a `postprocess`.
    """
    first, second = one["manifest"], other["manifest"]
    decided = any(
        each.get("thresholds") or each["config"].get("postprocess") for each in (first, second)
    )
    if decided or first["held_out"] != second["held_out"]:
        return None
    with suppress(OSError, ValueError, KeyError, ConfigError, DataError):
        metric = metrics.find(one["metric"], first["config"]["target"])
        files = [npz.read(Path(row["folder"], "validation.npz")) for row in (one, other)]
        truth, _ = (arrays.pop("truth") for arrays in files)
        random, predicted = np.random.default_rng(0), [*files[0].values(), *files[1].values()]
        draws = (random.integers(len(truth), size=len(truth)) for _ in range(RESAMPLES))
        pairs = [[metric(truth[draw], each[draw]) for each in predicted] for draw in draws]
        return float(np.std(np.diff(pairs)))
    return None
