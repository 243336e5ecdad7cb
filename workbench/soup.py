"""Model soups: the mean of the weights of several runs of one architecture, as a single artifact.

Members are chosen greedily (Wortsman et al. 2022, arXiv:2203.05482). The best run is the first
member. The other runs are then tried from the best to the worst. A run is added if the mean of the
weights scores at least as well on the held-out rows with the run as without it. With folds, weights
are averaged fold by fold. All runs hold out the same rows, so each mean is scored on rows that its
models were not trained on. BatchNorm statistics are averaged, too. The mean is only useful if the
runs started from the same weights.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from formats import atomic_file
from formats.checksums import sealed
from pipeline import artifact
from pipeline.data import dataset, folds
from pipeline.data.row_gathering import blocks
from pipeline.errors import ArtifactError
from pipeline.evaluate import held_out_rows
from pipeline.infer import check, ensemble, forward_pass
from pipeline.infer.ensemble import CommonRows
from pipeline.models import architectures, published, weight_names
from pipeline.runtime import provenance
from pipeline.train.loop import new_run_id
from pipeline.train.training import golden_rows

Weights = Mapping[str, np.ndarray]


def make(
    outputs: Sequence[Path], folder: Path, output: Path, show: Callable[[str], None]
) -> dict[str, Any]:
    """Write a soup's artifact and validation files, and an ensemble.json with only this soup.

    Args:
        outputs: output folders of training runs.
        folder: their competition folder.

    Returns:
        The result of `ensemble.search`, with the soup's run_id and the path of its artifact.

    Raises:
        ArtifactError: if a run does not match the others or the folder.
        ConfigError, DataError, DiskError, ReportError: as in `ensemble.find` and `dataset`.
    """
    started, rows = time.monotonic(), ensemble.common_rows(outputs, show)
    pot = Pot(rows, folder, output / "decoded", show)
    soups = Soups(**vars(rows), pot=pot, places=pot.places)
    soup, used = ensemble.search(soups, greedy), greedy(soups)
    best = rows.members[int(soups.ranks(np.eye(len(used))).argmax())]
    weights, predictions = pot.weights(used), pot.predictions(used)
    found = held_out_rows.HeldOutRows(best.config, pot.examples, pot.pairs, predictions)
    decided = held_out_rows.decided(found, folder, show)
    held_out_rows.write(found, decided, output)
    error, origin = held_out_rows.standard_error(decided), provenance.from_checkout()
    details = {
        **best.manifest,
        "run_id": new_run_id(best.config),
        "versions": provenance.versions(),
        "git_commit": origin.git_commit,
        "git_dirty": origin.git_dirty,
        "bundle_sha256": None,
        "soup": soup,
        "error": error,
        "thresholds": decided.found,
        **held_out_rows.metrics_of(decided, [(0, {})] * len(pot.pairs), show),
        "baseline": held_out_rows.compare(decided, error, show),
        "seconds": {"total": round(time.monotonic() - started, 3)},
        "earlier_seconds": 0.0,
    }
    made = replace(
        best,
        manifest=details,
        prior=predictions[pot.places].mean(axis=0),
        weights=artifact.joined(weights) if best.config.folds else weights[0],
        golden_outputs=pot.golden(used, best.golden_inputs),
    )
    manifest, place = artifact.save(output / "artifact", made), output.resolve() / "artifact"
    only = {name: manifest[name] for name in ensemble.PINS}
    only |= {"config": best.config.name, "folder": str(place), "weight": 1.0}
    atomic_file.write(output / ensemble.FILE, sealed({"members": [only]}))
    for line in (*ensemble.table(soup, "soup"), f"Wrote {place}, config {best.config.name}"):
        show(line)
    return {**soup, "run_id": manifest["run_id"], "artifact": str(place)}


def greedy(rows: CommonRows) -> np.ndarray:
    """Return equal weights for the members of the greedy soup, and 0 for other runs, float (m,)."""
    every = np.eye(len(rows.members))
    order = np.argsort(-rows.ranks(every), kind="stable")
    used = every[order[0]]
    for place in order[1:]:
        before, after = rows.ranks(np.stack([used, used + every[place]]))
        used = used + every[place] if after >= before else used
    return np.asarray(used / used.sum())


@dataclass(frozen=True, kw_only=True)
class Soups(CommonRows):
    """Held-out rows that are scored with averaged weights.

    Attributes:
        places: indices of the rows in the examples of `pot`.
    """

    pot: "Pot"
    places: np.ndarray

    def mean(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self.pot.predictions(weights)[self.places])

    def part(self, rows: np.ndarray) -> "Soups":
        truth, places = self.truth[rows], self.places[rows]
        return replace(self, ids=self.ids[rows], truth=truth, places=places)


def _start(member: artifact.Artifact) -> Any:
    """Return what identifies a run's initial weights, given the network and the seed."""
    first = member.manifest["init_from"]
    return first["weights_sha256"] if first else member.manifest["pretrained"]


class Pot:
    """Averages the weights of the members that are used. Each member counts equally.

    Args:
        rows: the members and their held-out rows.
        cache: folder for decoded images.

    Attributes:
        examples: all labelled examples.
        pairs: see `folds.splits`.
        places: the held-out rows.
    """

    def __init__(
        self, rows: CommonRows, folder: Path, cache: Path, show: Callable[[str], None]
    ) -> None:
        self.members, first = rows.members, rows.members[0]
        examples = dataset.read_training(folder, first.config, cache=cache, show=show)
        self.pairs = folds.splits(examples, first.config)
        self.places = pd.Index(examples.ids).get_indexer(rows.ids)
        self.examples = replace(examples, target=first.target)
        self._batch = forward_pass.batch_size(first.golden_inputs, len(rows.ids))
        self._found: dict[bytes, np.ndarray] = {}
        with check.building(check.FULL):
            carried = published.carried(first.manifest)
            self._model = architectures.build(first.config, networks=carried)
        held_out = [folds.held_out(examples, pair) for pair in self.pairs]
        inputs = np.asarray(examples.inputs[golden_rows(self.pairs)], float)
        for used, each in zip(np.eye(len(self.members)), self.members, strict=True):
            golden, why = each.golden_inputs, ""
            shapes = [array.shape for array in each.folds[0].values()]
            if each.config.fit:
                why = f"fit={each.config.fit!r} trains no network"
            elif each.manifest["held_out"] != held_out:
                why = f"it did not hold out the same rows of {folder}"
            elif shapes != [array.shape for array in first.folds[0].values()]:
                why = f"the weights of {first.manifest['run_id']} have different shapes"
            elif not np.allclose(golden, inputs, rtol=1e-4, atol=1e-2, equal_nan=True):
                why = f"its inputs differ from the inputs in {folder}"
            elif _start(each) != _start(first):
                why = f"it did not start from the same weights as {first.manifest['run_id']}"
            elif not check.difference(each, self.golden(used, golden)) <= 1e-4:
                why = f"its network differs from the network of {first.manifest['run_id']}"
            if why:
                raise ArtifactError(
                    f"Run {each.manifest['run_id']} cannot be in this soup: {why}.\nAll runs must"
                    " have the same network, initial weights (init_from), inputs, seed, folds and"
                    " validation_fraction. Remove this run, or average predictions:\n"
                    "python -m pipeline ensemble OUT OUT --output DIR"
                )

    def weights(self, used: np.ndarray) -> list[Weights]:
        """Return the mean weights of the used members for each fold, by key."""
        keys, means = [*weight_names.keys(self._model).values()], list[Weights]()
        folds = (self.members[place].folds for place in np.flatnonzero(used).tolist())
        for parts in zip(*folds, strict=True):
            ours = [weight_names.matched(keys, part) for part in parts]
            sums = {key: sum(part[key].astype(float) for part in ours) for key in ours[0]}
            means.append({key: (sums[key] / len(ours)).astype(np.float32) for key in sums})
        return means

    def predictions(self, used: np.ndarray) -> np.ndarray:
        """Return predictions for all examples, float32 (n, …).

        A held-out row gets the prediction of its fold. The predictions for all other rows are 0.
        """
        name = (used > 0).tobytes()
        if name not in self._found:
            found = np.zeros((len(self.examples), *self.members[0].prior.shape), np.float32)
            for weights, (_, rows) in zip(self.weights(used), self.pairs, strict=True):
                found[rows] = self._predicted(weights, self.examples.inputs, rows)
            self._found[name] = found
        return self._found[name]

    def golden(self, used: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        rows = np.arange(len(inputs))
        each = [self._predicted(weights, inputs, rows) for weights in self.weights(used)]
        return self.members[0].target.mean(each)

    def _predicted(self, weights: Weights, inputs: Any, rows: np.ndarray) -> np.ndarray:
        artifact.assign(self._model, weights)
        with jax.default_matmul_precision("highest"):
            outputs = [
                architectures.outputs(self._model, block, self._batch)[:real]
                for block, real in blocks(inputs, rows, self._batch)
            ]
        return self.members[0].target.predictions(np.concatenate(outputs))
