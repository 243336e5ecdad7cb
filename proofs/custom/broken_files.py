"""Own files in each of which one thing cannot work.

`python -m proofs.custom.broken_files FOLDER` prints one JSON object: what each refusal says.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from localkaggle import competitions
from pipeline import config as configs
from pipeline.configs import orders
from pipeline.data import dataset
from pipeline.errors import ConfigError, DataError
from pipeline.training import own_code_check

ORDERS = Path(orders.__file__)
WHOLE = Path(__file__).with_name("digits_own.py")
LOGITS = 'layers.Dense(num_classes, dtype="float32", name="logits")(x)'
LOSS = "(1 - keras.ops.exp(-losses)) ** GAMMA * losses"
RECALL = "float(np.mean([(labels[truth == each] == each).mean() for each in np.unique(truth)]))"
ERASED = "jax.lax.dynamic_update_slice(image, black, (*corner, 0))"


@dataclass(frozen=True)
class Broken:
    """A file with one text replaced, and what the refusal says, as a regular expression.

    Attributes:
        both: whether TensorFlow is needed to see it.
        reads: a file whose readers read an embedded competition; None: `WHOLE`.
    """

    before: str
    after: str
    says: str
    both: bool = False
    reads: Path | None = None


def _reader(before: str, after: str, says: str) -> Broken:
    return Broken(before, after, says, reads=ORDERS)


CASES = {
    "model of a wrong shape": Broken(
        LOGITS, LOGITS.replace("num_classes", "7"), r"line 18\).*shape \(None, 7\), not \(None, 10"
    ),
    "model of a wrong dtype": Broken(
        LOGITS, f'keras.ops.cast({LOGITS}, "int32")', "outputs are int32, not float32"
    ),
    "model that uses what is missing": Broken(
        LOGITS, f"{LOGITS} + missing", r"line 18\).*\(line 35\) ended with NameError"
    ),
    "NaN gradient": Broken(
        LOGITS,
        f"keras.ops.sqrt({LOGITS} * 0)",
        r"line 18\): the gradient of the loss is not finite",
    ),
    "works under JAX only": Broken(
        LOGITS,
        f"layers.Lambda(lambda y: y.at[0].add(0.0), name='at')({LOGITS})",
        "works with JAX and not with TensorFlow",
        both=True,
    ),
    "loss with a mean": Broken(
        LOSS, f"keras.ops.mean({LOSS})", r"line 38\) returns float32 \(\) for 16 rows"
    ),
    "loss that ignores the labels": Broken(
        LOSS, "keras.ops.sum(outputs, axis=-1)", r"line 38\) does not depend on the labels"
    ),
    "loss that is not finite": Broken(
        LOSS, f"keras.ops.log({LOSS} - 100)", r"line 38\).*not finite"
    ),
    "loss with a mistake": Broken(LOSS, "losses.nothing", r"line 38\).*AttributeError \(line 41\)"),
    "metric that fails on one class": Broken(
        RECALL,
        "float(np.mean([(labels[truth == each] == each).mean() for each in range(10)]))",
        r"line 44\) fails where rows of a class are missing",
    ),
    "metric that ignores the predictions": Broken(
        RECALL, "float(len(truth))", r"line 44\) gives 20 to the truth and 20 to the worst"
    ),
    "metric with a mistake": Broken(
        RECALL, f"{RECALL} / 'a'", r"line 44\) \(line 46\) ended with TypeError"
    ),
    "metric of unknown arguments": Broken(
        "labels: np.ndarray) -> float", "classes: np.ndarray) -> float", r"takes \(truth, classes\)"
    ),
    "augmentation of a wrong shape": Broken(
        ERASED, "image[1:]", r"line 49\) returns uint8 \(7, 8, 1\)"
    ),
    "augmentation of a wrong dtype": Broken(ERASED, "image / 2", r"line 49\) returns float32"),
    "augmentation without the key": Broken(
        ERASED, "image + np.random.randint(99, dtype='uint8')", r"line 49\) gives two results"
    ),
    "reader of other ids": _reader(
        "table.loc[list(ids)]",
        "table.iloc[: len(ids)]",
        r"read_test_orders' \(orders.py, line 26\) returns rows of other ids",
    ),
    "reader with an id twice": _reader(
        "ids=list(table.index)",
        "ids=['a', *table.index[1:-1], 'a']",
        r"line 18\) returns 1197 ids, 1196 of them different, as 'a'",
    ),
    "reader of a wrong shape": _reader(
        "np.stack(pictures)[..., None]",
        "np.stack(pictures)",
        r"the input 'image' is uint8 \(1197, 8, 8\); expected uint8 \(1197, 8, 8, 1\)",
    ),
    "reader of a wrong dtype": _reader(
        "to_numpy(np.float32)", "to_numpy()", r"the input 'numbers' is float64 \(1197, 2\)"
    ),
    "reader of what is not finite": _reader(
        "to_numpy(np.float32)",
        "to_numpy(np.float32) * np.float32('nan')",
        "the input 'numbers' is not finite in row 0",
    ),
    "reader of too few labels": _reader(
        'labels=table["size"]',
        'labels=table["size"][1:]',
        r"line 18\) returns labels of the shape \(1196,\); expected \(1197,\)",
    ),
    "reader of a state that is no JSON": _reader(
        "state=state)", "state=table)", r"line 18\) returns a state that JSON cannot hold"
    ),
    "reader with a mistake": _reader(
        "found = inputs(", "found = outputs(", r"line 18\) ended with NameError \(line 22\)"
    ),
    "name that is missing": Broken('loss="focal"', 'loss="vocal"', "loss='vocal' cannot work"),
    "syntax error": Broken("def focal(", "def focal((", r"\(line \d+\) could not be read"),
}


def refusal(folder: Path, name: str) -> str:
    """Return what is said of a broken file; "" if nothing is."""
    case = CASES[name]
    file = case.reads or WHOLE
    text = file.read_text(encoding="utf-8")
    if text.count(case.before) != 1:
        raise ValueError(f"{case.before!r} stands {text.count(case.before)} times in {file}")
    path = folder / file.name
    path.write_text(text.replace(case.before, case.after), encoding="utf-8")
    try:
        config = configs.load(str(path))
        if case.reads:
            data = folder / config.competition
            if not data.is_dir():
                competitions.EMBEDDED[config.competition]().write(data)
            dataset.read_training(data, config)
        else:
            (own_code_check.check if case.both else own_code_check.by_jax)(
                config, lambda line: None
            )
    except (ConfigError, DataError) as error:
        return str(error)
    return ""


def refusals(folder: Path) -> dict[str, str]:
    """Return what is said of each broken file."""
    return {name: refusal(folder, name) for name in CASES}


if __name__ == "__main__":
    print(json.dumps(refusals(Path(sys.argv[1]))))
