"""An invalid input ends in a valid submission.csv, or in a refusal that says what is wrong and what
to do.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import Config, Data, Optimizer
from pipeline.data.image_files import RERUN
from pipeline.errors import PipelineError
from pipeline.infer import submission
from tests.hostile import bench, judge, mutants, pictures
from tests.hostile.bench import SAMPLE, Subject
from tests.hostile.judge import Said
from tests.hostile.mutants import REFUSED, VALID, Mutant

OLDER = b"id,label\nolder,1\n"
MEAN = "has the mean prediction for every id"

# Configs: each field with values of another kind.

# Each is Python. Of YAML's traps: 1e-3 that is a text, no that is a text, a number that is a date.
ODD = (
    '"1e-3"', '"no"', '"128"', "None", "True", 'float("nan")', 'float("inf")', "-1", "0", "1.5",
    "1e400", "10**400", "-0.0", '""', '" "', "[]", "{}", "()", "b'x'", "object()", "lambda: 1",
    "'../../x'", "'/etc/hostname'", "'a\\0b'", "'x' * 10_000", "'\\ud800'", "{'a': {}}",
)  # fmt: skip
FIELDS = {
    "replace(digits, {}={})": [field.name for field in fields(Config)],
    "replace(digits, data=replace(digits.data, {}={}))": [field.name for field in fields(Data)],
    "replace(digits, optimizer=replace(digits.optimizer, {}={}))": [
        field.name for field in fields(Optimizer)
    ],
}
FILE = """from dataclasses import replace
from tests.configs.digits import CONFIG as digits
CONFIG = {}
"""


@st.composite
def configs(draw: Any, subjects: Sequence[str]) -> Mutant:
    """One field of the config has an odd value."""
    form = draw(st.sampled_from(list(FIELDS)))
    field = draw(st.sampled_from(FIELDS[form]))
    plain = st.none() | st.integers() | st.floats() | st.text(max_size=9)
    value = draw(st.sampled_from(ODD) | plain.map(_python))
    return Mutant(
        f"{field}={value}",
        "digits",
        dict(bench.cut("digits")),
        places=((field, "digits.py", "config 'digits'", "train.csv", SAMPLE, "test"),),
        config=FILE.format(form.format(field, value)),
    )


def _python(value: object) -> str:
    return f"float({str(value)!r})" if isinstance(value, float) else repr(value)


# The judgement

FAMILIES = {
    "ids": (mutants.ids, 5, 150),
    "test sets": (mutants.test_sets, 4, 80),
    "forms": (mutants.forms, 8, 200),
    "labels": (partial(mutants.cells, columns=mutants.TARGET), 3, 60),
    "numbers": (mutants.cells, 5, 120),
    "pictures": (pictures.pictures, 6, 120),
    "configs": (configs, 8, 200),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "subjects_of",
    [("digits", "digits-csv"), pytest.param(tuple(bench.FITS), marks=pytest.mark.slow)],
    ids=["some", "many"],
)
def test_an_invalid_input_is_refused_or_read_correctly(subjects, family, subjects_of):
    strategy, few, many = FAMILIES[family]
    for name in subjects_of:
        bench.cut(name)  # outside of the strategies, since it draws, too

    @settings(max_examples=few if len(subjects_of) == 2 else many)
    @given(mutant=strategy(subjects_of), older=st.sampled_from([None, OLDER]))
    def each(mutant: Mutant, older: bytes | None) -> None:
        with TemporaryDirectory() as scratch:
            problem = ended(subjects(mutant.subject), mutant, older, Path(scratch))
        assert not problem, problem

    each()


def ended(subject: Subject, mutant: Mutant, older: bytes | None, scratch: Path) -> str:
    """Return what is wrong with how the commands on a mutant ended; "" where nothing is."""
    place, output = scratch / "in", scratch / "out"
    config, artifact = subject.config, subject.artifact
    bench.lay(mutant.files, place)
    output.mkdir()
    if mutant.config is not None:
        config = scratch / config.name
        config.write_text(mutant.config, encoding="utf-8", newline="")
    path, said = output / "submission.csv", Said(0, "")
    if older is not None:
        path.write_bytes(older)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RERUN, "1") if mutant.rerun else patch.delenv(RERUN, raising=False)
        if mutant.train:
            said, artifact = bench.run("train", config, place, output), output / "artifact"
            if said.code and artifact.exists():
                return "training was refused, and there is an artifact"
        if said.code == 0:
            said = bench.run("infer", config, place, output, artifact)
    left = path.read_bytes() if path.is_file() else None
    strange = [file.name for file in output.glob("*submission*") if file != path]
    if strange:
        return f"{strange} stays"
    sample, fits = mutant.files.get(SAMPLE, b""), bench.FITS[mutant.subject]
    if said.code:
        problem = judge.mute(said, mutant.places)
        if not problem and left != older:
            # In a scored rerun the mean prediction is worth more than nothing.
            told = older is None and left is not None and MEAN in said.text
            problem = judge.invalid(left, sample, fits) if told else f"submission.csv is {left!r}"
        return problem or (f"refused: {said.text[-500:]}" if mutant.end == VALID else "")
    if mutant.end == REFUSED or left is None:
        return "taken, and it should be refused" if left else "success, and no submission.csv"
    return judge.invalid(left, sample, fits) or (
        moved(subject, mutant, left) if mutant.same else ""
    )


def moved(subject: Subject, mutant: Mutant, left: bytes) -> str:
    """Return in words how many ids have other predictions than in the whole test set."""
    found = [
        name
        for name, value in bench.values(left).items()
        if name in subject.predicted and not alike(subject.predicted[name], value)
    ]
    return f"{len(found)} ids have other predictions" if len(found) > mutant.touched else ""


def alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two predictions are equal but for the rounding of another batch."""
    return one == other or all(
        judge.number(text) and float(text) == pytest.approx(float(last), rel=1e-4, abs=1e-4)
        for text, last in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("most", [40, pytest.param(800, marks=pytest.mark.slow)])
def test_an_edited_submission_is_refused_or_valid_on_kaggle(tmp_path, most):
    sample, path = tmp_path / SAMPLE, tmp_path / "submission.csv"
    sample.write_bytes(bench.cut("diabetes")[SAMPLE])
    ids = [row[0] for row in bench.rows(bench.cut("diabetes"), SAMPLE)[1:]]
    changes = {**mutants.SAME, **mutants.BROKEN}

    @settings(max_examples=most)
    @given(
        st.sampled_from(list(changes)),
        st.sampled_from(mutants.ODD_NUMBERS) | st.floats().map(repr) | st.text(max_size=9),
        mutants.RANDOM,
    )
    def each(what: str, value: str, random: Random) -> None:
        files: bench.Files = {}
        rows = [[name, value if name == ids[-1] else "1.5"] for name in ids]
        bench.put(files, path.name, [["id", "progression"], *rows])
        path.write_bytes(changes[what](files[path.name], random))
        try:
            submission.check(path, sample, within=submission.ANY_NUMBER)
        except PipelineError as error:
            said = Said(error.exit_code, f"Error: {error}")
            assert not judge.mute(said, [[path.name, SAMPLE]])
        else:
            assert not judge.invalid(path.read_bytes(), sample.read_bytes(), judge.number)

    each()
