"""Ensemble: trained models whose predictions are averaged with weights, the members.

`python -m pipeline ensemble` finds the weights and writes ensemble.json, which pins each member by
the sha256 of its weights. The same members are in the bundle of an inference.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from formats.checksums import opened
from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.errors import ArtifactError, ConfigError, reading
from pipeline.evaluate import competition_metric
from pipeline.runtime import mounts

FILE = "ensemble.json"
AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"
PINNED = ("run_id", "weights_sha256")


@dataclass(frozen=True)
class Member:
    """A trained model with its weight.

    Attributes:
        run_id, weights_sha256: of its artifact.
        config: the name of its config.
        weight: above 0; the weights of an ensemble add up to 1.
    """

    run_id: str
    weights_sha256: str
    config: str
    weight: float


def read(path: Path) -> list[Member]:
    """Return the members in an ensemble.json that have a weight.

    Raises:
        ConfigError: if it is not what the command wrote.
    """
    with reading(path, ConfigError, AGAIN):
        content = path.read_bytes()
    try:
        return pinned(opened(content))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no ensemble: {error}.\nExpected the file as it was written. {AGAIN}"
        ) from error


def pinned(expect: Mapping[str, Any]) -> list[Member]:
    """Return the members that a bundle or an ensemble.json names; one of a single model."""
    listed = expect.get("members", [{"config": "", "weight": 1.0, **expect}])
    names = Member.__dataclass_fields__
    members = [Member(**{name: each[name] for name in names}) for each in listed if each["weight"]]
    if not members or not all(math.isfinite(one.weight) and one.weight > 0 for one in members):
        raise ValueError(f"its weights are {[each['weight'] for each in listed]}")
    return members


def mounted(inputs: Path, expect: Mapping[str, Any]) -> tuple[list[Artifact], list[float]]:
    """Return the artifacts that a bundle expects, found by run id and verified, and their weights.

    Args:
        inputs: /kaggle/input.
        expect: of the bundle.

    Raises:
        ArtifactError: if one is not mounted, or has other bytes.
    """
    members = pinned(expect)
    found = [verified(mounts.artifact(inputs, member.run_id), member) for member in members]
    return found, [member.weight for member in members]


def verified(folder: Path, member: Member) -> Artifact:
    """Return the artifact in a folder, which has to be that member's. Raises `ArtifactError`."""
    return artifact.load(folder, {name: getattr(member, name) for name in PINNED})


def folders(given: Sequence[Path], path: Path | None) -> list[Path]:
    """Return the folders of the artifacts: those given, or else those that an ensemble.json names.

    Raises:
        ConfigError: if there are none.
    """
    if given or path is None:
        if not given:
            raise ConfigError(
                "Neither --artifact nor --ensemble is given; expected the model to infer with.\n"
                "Give --artifact DIR, or --ensemble FILE."
            )
        return list(given)
    read(path)  # refuses another file
    listed = json.loads(path.read_bytes())["members"]
    return [Path(each["folder"]) for each in listed if each["weight"]]


def chosen(
    folders: Sequence[Path], path: Path | None, config: Config
) -> tuple[list[Artifact], list[float] | None]:
    """Return the artifacts in folders, verified, and their weights, None without an ensemble.json.

    Args:
        path: of an ensemble.json, which names these artifacts and no others.
        config: of the inference. Without an ensemble.json one artifact has to be of that config.

    Raises:
        ConfigError: if the folders are not those of the members, or of another model than that of
            the config.
        ArtifactError: if one has other bytes.
    """
    found, weights = [artifact.load(folder) for folder in folders], None
    if path is not None:
        members = {(member.run_id, member.weights_sha256): member.weight for member in read(path)}
        given = [tuple(each.manifest[name] for name in PINNED) for each in found]
        if sorted(given) != sorted(members):
            raise ConfigError(
                f"{path} names {_listed(members)}; the artifacts are {_listed(given)}.\n"
                "Expected the artifact of each, once, with the weights that were averaged. Correct"
                f" --artifact, or restore the folders. {AGAIN}"
            )
        weights = [members[pin] for pin in given]
    trained = found[0].config.name
    if path is None and len(found) == 1 and trained != config.name:
        raise ConfigError(
            f"--config {config.name}: the artifact {found[0].manifest['run_id']} was trained with"
            f" {trained}.\nGive --config {trained}, or another --artifact."
        )
    return found, weights


def _listed(pins: Iterable[tuple[str, ...]]) -> str:
    return ", ".join(f"{run_id} ({digest[:12]})" for run_id, digest in sorted(pins)) or "none"


def best_first(
    artifacts: Sequence[Artifact], weights: Sequence[float] | None
) -> list[tuple[Artifact, float]]:
    """Return members and weights, the best by its validation first, of equal ones the heaviest;
    those without a weight are left out.

    A weight does not say how good a member is: it depends on how far its predictions lie apart.

    Args:
        artifacts: of models with one target.
        weights: as many, of 0 or more; None: equal ones. They are divided by their sum.

    Raises:
        ConfigError: if these are no weights, or one run is given twice.
        ArtifactError: if two predict different things.
    """
    weights = [1.0] * len(artifacts) if weights is None else list(weights)
    total = sum(weights)
    if len(weights) != len(artifacts) or not total > 0 or min(weights) < 0:
        raise ConfigError(
            f"weights={weights} cannot work for {len(artifacts)} artifacts; expected a number of 0"
            " or more for each, and one above 0.\nCorrect weights."
        )
    runs = [str(found.manifest["run_id"]) for found in artifacts]
    if len(set(runs)) < len(runs):
        raise ConfigError(
            f"The runs {', '.join(runs)} are not all different; expected each once.\n"
            "Give each artifact once; a weight says how much it counts."
        )
    refuse_differing(artifacts)
    metric = competition_metric.of(artifacts[0].config, str(artifacts[0].manifest["metric"]))
    sign = 1 if metric.greater_is_better else -1

    def rank(pair: tuple[Artifact, float]) -> tuple[float, float]:
        score = pair[0].manifest["metrics"].get(f"validation_{metric.name}")
        return (-math.inf if score is None else sign * score), pair[1]

    pairs = zip(artifacts, (weight / total for weight in weights), strict=True)
    return sorted((pair for pair in pairs if pair[1]), key=rank, reverse=True)


def refuse_differing(artifacts: Sequence[Artifact]) -> None:
    """Raise `ArtifactError` unless all predict the same: competition, kind, names and metric."""
    first = artifacts[0]
    for other in artifacts[1:]:
        for what, a, b in zip(
            ("competition", "target", "classes or columns", "metric"),
            _meaning(first),
            _meaning(other),
            strict=True,
        ):
            if a != b:
                raise ArtifactError(
                    f"Two members predict different things: {what} {str(a)[:200]} in run"
                    f" {first.manifest['run_id']}, {str(b)[:200]} in run"
                    f" {other.manifest['run_id']}.\n"
                    "Expected the same in all, in the same order. Leave one out, or train it again"
                    " with the other's target, labels and metric."
                )


def _meaning(found: Artifact) -> tuple[Any, ...]:
    target = found.target
    return found.config.competition, target.kind, target.names, found.manifest.get("metric")


def used(members: Sequence[tuple[Artifact, float]], share: Sequence[float]) -> list[dict[str, Any]]:
    """Return what a run used, for the submission's lineage: each member, with the weight that it
    should have, and the share that it had, 0 if it was left out.
    """
    return [
        asdict(
            Member(
                found.manifest["run_id"],
                found.manifest["weights_sha256"],
                found.config.name,
                weight,
            )
        )
        | {"used": had}
        for (found, weight), had in zip(members, share, strict=True)
    ]
