"""Mutants of configs: each field with values of another kind, and files that are no config, with
what YAML and JSON would let pass.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from proofs.spoiled_inputs.mutants import REFUSED, Files, Mutant

# Each is Python. Of YAML's traps: 1e-3 that is a text, no that is a text, a number that is a date.
ODD = (
    '"1e-3"', '"no"', '"128"', "None", "True", 'float("nan")', 'float("inf")', "-1", "0", "1.5",
    "1e400", "10**400", "-0.0", '""', '" "', "[]", "{}", "()", "b'x'", "object()", "lambda: 1",
    "'../../x'", "'/etc/hostname'", "'a\\0b'", "'x' * 10_000", "'\\ud800'", "{'a': {}}",
)  # fmt: skip
INSERTED = (
    "folds", "seed", "keep", "precision", "patience", "session_hours", "target", "metric",
    "steps_per_call", "micro_batch", "handoff", "stall_seconds", "model_options",
    "data", "optimizer", "nonsense",
)  # fmt: skip
PLACES = (
    "kind", "resize", "train_csv", "test_images", "sample_submission", "id_column", "label_column",
    "suffix", "flip", "group_column", "validation_fraction",
)  # fmt: skip
FROM_JSON = "import json\nfrom pipeline.config import from_json, load\nCONFIG = from_json("
FILES: dict[str, tuple[Callable[[str], str], bool]] = {
    "empty": (lambda text: "", True),
    "with a field twice": (
        lambda text: text.replace('name="digits",', 'name="digits", name="digits",'),
        True,
    ),
    "with a comma less": (lambda text: text.replace('name="digits",', 'name="digits"'), True),
    "with a bracket less": (lambda text: text.rstrip().removesuffix(")"), True),
    "without CONFIG": (lambda text: text.replace("CONFIG =", "config ="), True),
    "where CONFIG is a dict": (lambda text: f"{text}\nCONFIG = CONFIG.to_json()\n", True),
    "of another name": (lambda text: text.replace('name="digits"', 'name="letters"'), True),
    "in YAML": (lambda text: "name: digits\nbase_rate: 1e-3\nflip: no\n", True),
    "in JSON": (lambda text: '{"name": "digits", "name": "letters", "rate": NaN}', True),
    "that divides by zero": (lambda text: f"{text}\n1 / 0\n", True),
    "that ends the process": (lambda text: f"{text}\nraise SystemExit(0)\n", True),
    "that imports what is not there": (lambda text: f"import nothing_of_this_name\n{text}", True),
    "with a NUL": (lambda text: f"{text}\0", True),
    "without data": (lambda text: re.sub(r"data=Data\(.*?\),\n", "", text), True),
    "with CRLF": (lambda text: text.replace("\n", "\r\n"), False),
    "with a byte order mark": (lambda text: f"\ufeff{text}", False),
    "with tabs": (lambda text: text.replace("    ", "\t"), False),
    "of JSON that is one": (
        lambda text: FROM_JSON + "json.loads(json.dumps(load('digits').to_json())))\n",
        False,
    ),
    "of JSON with an unknown field": (
        lambda text: FROM_JSON + "{**load('digits').to_json(), 'more': 1})\n",
        True,
    ),
    "of JSON with NaN": (
        lambda text: (
            FROM_JSON + "{**load('digits').to_json(), **json.loads('{\"batch\": NaN}')})\n"
        ),
        True,
    ),
}


def configs(source: str) -> Iterator[Mutant]:
    """Yield configs of another form, and each field of `source`, the text of
    pipeline/configs/digits.py, with each odd value.
    """
    for name, (change, refused) in FILES.items():
        yield _mutant(name, change, refused=refused)
    for field, found in sorted(
        {
            found[1]: found[0]
            for found in re.finditer(r"\b(\w+)=(?!Data|Optimizer)[^,()\n{}]+", source)
        }.items()
    ):
        for value in ODD:
            yield _mutant(f"{field}={value}", partial(_put, old=found, new=f"{field}={value}"))
    for field in INSERTED:
        for value in ODD:
            yield _mutant(
                f"{field}={value}",
                partial(_put, old='name="digits",', new=f'name="digits", {field}={value},'),
            )
    for field in PLACES:
        for value in ODD:
            yield _mutant(
                f"data.{field}={value}", partial(_put, old="Data(", new=f"Data({field}={value}, ")
            )


def _mutant(name: str, change: Callable[[str], str], *, refused: bool = False) -> Mutant:
    # What is refused before anything is read names the file of the config; what only the data
    # contradicts, the data's.
    words = ("digits.py", "--config", "train.csv", "sample_submission.csv", "test")
    return Mutant(
        "configs",
        name,
        "digits",
        _nothing,
        config=change,
        end=REFUSED if refused else "",
        words=words,
    )


def _put(text: str, *, old: str, new: str) -> str:
    return text.replace(old, new, 1)


def _nothing(files: Files, draw: Random) -> None:
    """Leave the competition as it is."""
