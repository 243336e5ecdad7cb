"""Inspect describes a folder: its contents, its problems, and a config that runs unedited."""

import io
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from localkaggle.competitions import EMBEDDED
from pipeline import config as configs
from pipeline.config import Config, Data
from pipeline.data import dataset
from pipeline.data.dataset import read_test
from pipeline.errors import DataError, PipelineError, SubmissionError
from tests.shipped import shipped
from workbench.__main__ import main
from workbench.inspect import config_file, inspection, page, proposal
from workbench.inspect.inspection import Inspection
from workbench.inspect.tables import Given

# The others have custom readers.
DESCRIBED = [
    slug
    for slug in EMBEDDED
    if (name := slug.replace("-", "_")) in configs.config_files.named_files()
    and configs.load(name).data.kind != "custom"
]
RANDOM = np.random.default_rng(0)
SHAPE = "kind height width channels train_csv test_csv sample_submission id_column label_column"
COLUMNS = "numeric_columns categorical_columns suffix train_images test_images resize"


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return file.getvalue()


def noise(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 255, shape, dtype=np.uint8)


def csv(*rows: object) -> bytes:
    lines = [row if isinstance(row, str) else ",".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def size(n: int) -> float:
    """Return a number that reveals nothing of a label."""
    return n * 37 % 101 / 8


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def pictures(*, train: int = 24, test: int = 6, ending: str = ".png") -> dict[str, bytes]:
    """Return the files of a competition of images 12x12, three labels, ids without ending."""
    kind = "JPEG" if ending == ".jpg" else "PNG"
    return {
        "train.csv": csv("id,kind", *((f"a{n}", "xyz"[n % 3]) for n in range(train))),
        "sample_submission.csv": csv("id,kind", *((f"b{n}", "x") for n in range(test))),
        **{f"train/a{n}{ending}": png(noise(12, 12), kind) for n in range(train)},
        **{f"test/b{n}{ending}": png(noise(12, 12), kind) for n in range(test)},
    }


Column = Callable[[int], object]


def columns(
    rows=60, tests=9, *, label="sold", sold=lambda n: n * 5 % 2, sample=0, ids=int, alone="", **more
) -> dict[str, bytes]:
    """Return the files of a competition of a table: a number and `more` columns, by the number of a
    row, and a label of two; one of the columns is in the training table alone.
    """
    shared = [column for column in more if column != alone]
    labelled = ([ids(n), size(n), *(of(n) for of in more.values()), sold(n)] for n in range(rows))
    asked = ([1000 + n, n / 8, *(more[one](rows + n) for one in shared)] for n in range(tests))
    return {
        "train.csv": csv(["id", "size", *more, label], *labelled),
        "test.csv": csv(["id", "size", *shared], *asked),
        "sample_submission.csv": csv(["id", label], *((1000 + n, sample) for n in range(tests))),
    }


def table(rows: int = 60) -> dict[str, bytes]:
    return columns(rows, colour=lambda n: "rgb"[n * 7 % 3])


def proposed(folder: Path, given: Given | None = None) -> tuple[Inspection, Config]:
    """Return the inspection and the config, which has read the folder as training and inference
    would.
    """
    found = inspection.inspect(folder, given)
    names = config_file.names(folder, None, "")
    config = proposal.propose(found, *names, findings=found.findings).config
    examples = proposal.read_examples(config, found)
    proposal.check(config, found, examples, found.findings)
    assert "test examples is valid" in found.findings[-1].text
    return found, config


def texts(found: Inspection, level: str) -> str:
    return "\n".join(f"{line.about}: {line.text}" for line in found.findings if line.level == level)


def report(found: Inspection, config: Config) -> str:
    """Return inspect's findings, line by line, and its config."""
    said = [f"{line.level} {line.about}: {line.text}" for line in found.findings]
    return "\n".join([*said, repr(config)])


# What is proposed


@pytest.mark.parametrize("slug", DESCRIBED)
def test_an_embedded_competition_is_described_as_in_its_own_config(slug, tmp_path):
    """Inspect does not read the configs. A clean folder gets no warning; the written file loads as
    the proposed config and is formatted.
    """
    EMBEDDED[slug]().write(tmp_path / slug)
    by_hand = configs.load(slug.replace("-", "_"))
    found = inspection.inspect(tmp_path / slug)
    made = proposal.propose(found, *config_file.names(tmp_path / slug, None, ""))
    path = config_file.place(str(tmp_path / f"{made.config.name}.py"))
    path.write_text(config_file.text(found, made, given=True))

    assert configs.load(str(path)) == made.config
    ruff = f"{sys.executable} -m ruff format --check --config line-length=100 {path}".split()
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in f"{SHAPE} {COLUMNS}".split():
        assert getattr(made.config.data, name) == getattr(by_hand.data, name)
    for name in ("name", "competition", "num_classes", "target", "model"):
        assert getattr(made.config, name) == getattr(by_hand, name)
    assert made.config.metric == (by_hand.metric or "accuracy")
    assert texts(found, "warning") == ""


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@settings(max_examples=20)
@given(names=st.lists(NAMES, min_size=3, max_size=12, unique=True))
def test_any_config_can_be_written_as_a_file(names):
    """Whatever its columns are called."""
    first, label, *numbers = names
    data = Data(kind="table", id_column=first, label_column=label, numeric_columns=tuple(numbers))
    config = replace(shipped("digits"), data=data)

    assert eval(config_file.literal(config), vars(configs)) == config  # noqa: S307 - our own text


CELLS = st.one_of(
    st.sampled_from(["", "NA", "0", "1", "2", "a", "b", "1.5"]),
    st.integers(-50, 300).map(str),
    st.text("ab 1.,", max_size=4),
)
COLUMN = st.sampled_from([CELLS, st.sampled_from(["0", "1"]), st.floats(0, 1).map(str)])


@settings(max_examples=12)
@given(data=st.data())
def test_a_proposed_config_reads_its_folder_or_there_is_a_message(data, tmp_path_factory):
    """For any cells: nothing else is raised, and training and inference accept each proposal."""
    rows, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4))
    columns = [
        data.draw(st.lists(data.draw(COLUMN), min_size=rows + 3, max_size=rows + 3))
        for _ in range(width + 1)
    ]
    cells = [[f'"{cell}"' for cell in row] for row in zip(*columns, strict=True)]
    sample = [data.draw(st.sampled_from(["0", "0.5", "a"])) for _ in range(3)]
    names = [f"c{n}" for n in range(width)]
    files = {
        "train.csv": csv(["id", *names, "goal"], *([n, *cells[n]] for n in range(rows))),
        "test.csv": csv(["id", *names], *([900 + n, *cells[rows + n][:-1]] for n in range(3))),
        "sample_submission.csv": csv("id,goal", *((900 + n, sample[n]) for n in range(3))),
    }
    folder = put(tmp_path_factory.mktemp("any"), files)

    try:
        proposed(folder)
    except PipelineError as error:
        assert len(str(error).splitlines()) > 1


@pytest.mark.parametrize(
    ("train", "test", "train_files", "test_files", "wanted"),
    [
        # As cameras write them, alone and among others.
        ("a{}", "b{}", "train/a{}.JPG", "test/b{}.JPG", {"suffix": ".JPG"}),
        ("a{}", "b{}", "train/a{}.JPG train/a{}.jpg", "test/b{}.JPG", {"suffix": "*"}),
        ("a{}.png", "b{}.png", "all/a{}.png", "all/b{}.png", {"suffix": "", "test_images": "all"}),
        # As many tables do, with a path for each image: it is below a folder of the config.
        ("x/a{}", "y/z/b{}", "x/a{}.png", "y/z/b{}.png", {"train_images": ".", "test_images": "."}),
        ("train/x/a{}.png", "test/b{}.png", "train/x/a{}.png", "test/b{}.png", {"suffix": ""}),
        ("a{}", "y/b{}", "x/a{}.png", "y/b{}.png", {"train_images": "x", "test_images": "."}),
    ],
)
def test_images_are_found_by_their_ids(tmp_path, train, test, train_files, test_files, wanted):
    """Training and inference read them. Long ones are padded."""
    files = {
        "train.csv": csv("id,kind", *((train.format(n), "xy"[n % 2]) for n in range(20))),
        "sample_submission.csv": csv("id,kind", *((test.format(n), "x") for n in range(5))),
    }
    for names, count in ((train_files.split(), 20), (test_files.split(), 5)):
        for n in range(count):
            name = names[n % len(names)].format(n)
            kind = "PNG" if name.endswith("png") else "JPEG"
            files[name] = png(noise(10 + 2 * n, 50 - 2 * n), kind)

    _, config = proposed(put(tmp_path, files))

    data = config.data
    assert {name: getattr(data, name) for name in wanted} == wanted
    assert (data.resize, data.channels) == ("pad", 1) and data.height == data.width
    assert len(dataset.read_training(tmp_path, config)) == 20
    assert len(read_test(tmp_path, config)) == 5


def test_arrays_are_found_by_shape_and_their_rows_follow_the_test_table(tmp_path):
    """The sample has a different order: without the table, ids would get wrong predictions."""
    files = {
        "train_labels.csv": csv("label,row", *((n % 2, n) for n in range(30))),
        "metadata_test.csv": csv("row,age", *((n, 1) for n in (3, 0, 2, 1))),
        "sample_submission.csv": csv("row,label", *((n, 0) for n in range(4))),
    }
    put(tmp_path, files)
    images, known = noise(4, 9, 7, 3), noise(30, 9, 7, 3)
    known[5] = images[0]
    np.save(tmp_path / "x_train.npy", known)
    np.savez(tmp_path / "x_test.npz", images=images)

    found, config = proposed(tmp_path)

    data = config.data
    assert (data.kind, data.train_array, data.test_array) == ("arrays", "x_train.npy", "x_test.npz")
    assert data.shape == (9, 7, 3)
    assert "the same content as a training example: 5 and 3." in texts(found, "warning")
    assert (read_test(tmp_path, config).inputs(np.arange(4)) == images[[1, 3, 2, 0]]).all()


def numbered(letter: str, value: Column) -> dict[str, bytes]:
    """Return files of a table with 64 columns that are called by their number."""
    rows = [[value(n * 37 + place * 11) for place in range(64)] for n in range(39)]
    names = [f"{letter}{place}" for place in range(64)]
    return columns(30) | {
        "train.csv": csv(["id", "sold", *names], *([n, n % 2, *rows[n]] for n in range(30))),
        "test.csv": csv(["id", *names], *([1000 + n, *rows[30 + n]] for n in range(9))),
    }


# Without ids the test set is found by its columns and rows; two numbers in a name need no square.
NAMED = [f"{row}x{column}" for row in range(6) for column in range(10)]
PIXELS = {
    "known.csv": csv(["label", *NAMED], *([n % 2, *noise(60)] for n in range(20))),
    "asked.csv": csv(NAMED, *(noise(60) for _ in range(4))),
    "sample_submission.csv": csv("ImageId,Label", *((n + 1, 0) for n in range(4))),
}


def goal(labels: Column, sample: str) -> dict[str, bytes]:
    """Return files of a table with these labels, and a sample submission with one."""
    return columns(30, label="goal", sold=labels, sample=sample)


def labels_of(*labels: object, header: str = "id,kind") -> dict[str, bytes]:
    """Return files of images with these labels; of a tuple, a column each."""
    rows = [label if isinstance(label, tuple) else (label,) for label in labels]
    return pictures() | {"train.csv": csv(header, *((f"a{n}", *row) for n, row in enumerate(rows)))}


def sample_of(header: str, *values: object) -> dict[str, bytes]:
    """Return files of images with another sample."""
    return pictures() | {
        "sample_submission.csv": csv(header, *((f"b{n}", *values) for n in range(6)))
    }


def several(value: Column) -> dict[str, bytes]:
    """Return files of a table with two columns of labels."""
    files = columns(30, one=value, label="two", sold=lambda n: value(n + n // 2), alone="one")
    sample = csv("id,one,two", *((1000 + n, 0.5, 0.5) for n in range(9)))
    return files | {"sample_submission.csv": sample}


def shares(value: Column, sample: Sequence[float] = (0.5, 0.25, 0.25)) -> dict[str, bytes]:
    """Return files of a table with three columns of labels, from a function of a row's number."""
    files = columns(40)
    labelled = ([n, size(n), *value(n)] for n in range(40))
    asked = ([1000 + n, *sample] for n in range(9))
    return files | {
        "train.csv": csv("id,size,cat,dog,owl", *labelled),
        "sample_submission.csv": csv("id,cat,dog,owl", *asked),
    }


def counts(n: int) -> tuple[int, ...]:
    """Return votes for three classes."""
    return n % 3, n % 5, 1 + n % 2


SOFT = ("label_column=('cat', 'dog', 'owl')", "target='classes'", "num_classes=0")


def damaged(name: str, old: bytes, new: bytes) -> dict[str, bytes]:
    files = columns(60, 60, weight=lambda n: n / 8 + 0.01)
    return files | {name: files[name].replace(old, new, 1)}


def of_two(*labels: object) -> dict[str, bytes]:
    """Return files of a table whose submission holds the probability of one of two labels."""
    files = columns(30, label="goal", sold=lambda n: labels[n % 2], sample=0.5)
    sample = files["sample_submission.csv"].replace(b"goal", b"has_died")
    return files | {"sample_submission.csv": sample}


def without(*words):
    """Return a change that removes the files with one of the words in their names."""
    return lambda files: {
        name: files[name] for name in files if not any(word in name for word in words)
    }


# The files of the masks and of the other set have the same names as the images.
WITH_MASKS = {
    "train.csv": csv("id,kind", *((n, "xy"[n % 2]) for n in range(20))),
    "sample_submission.csv": csv("id,kind", *((n, "x") for n in range(20))),
    **{
        f"{folder}/{n}.png": png(noise(12, 12))
        for folder in ("train_images", "train_masks", "test")
        for n in range(20)
    },
}
PICTURES = pictures()
LABELS = ("cat", "dog", "big owl")
# Labels that are folders, called by a label of the sample.
IN_FOLDERS = {
    "sample_submission.csv": csv("id,animal", *((f"{n}", "cat") for n in range(5))),
    **{f"train/{k}/{n}.png": png(noise(12, 12)) for k in LABELS for n in range(12)},
    **{f"test/{n}.png": png(noise(12, 12)) for n in range(5)},
}
EACH = csv(["id", *LABELS], *((f"{n}.png", 0.3, 0.3, 0.4) for n in range(5)))
# Two folders of training images, PNG and JPEG, colours in some, ids without ending.
MIXED = {
    "labels/all.csv": csv("name,kind", *((f"a{n}", "xy"[n % 2]) for n in range(20))),
    "sample.csv": csv("name,kind", *((f"b{n}", "x") for n in range(5))),
    **{f"part_{n % 2}/a{n}.png": png(noise(90, 120, 3)) for n in range(9)},
    **{f"part_{n % 2}/a{n}.jpg": png(noise(90, 120, 3), "JPEG") for n in range(9, 20)},
    **{f"held/b{n}.png": png(noise(120, 90)) for n in range(5)},
}
CHOSEN = [" ".join(row) for row in combinations(("1", "3", "9", "27", "81", "243"), 4)]
SENTENCES = [
    f"the quick fox jumps over {' '.join(letters)} and runs away"
    for letters in product("abcde", "fghij", "klmno")
]
SEVERAL = [[LABELS[k] for k in range(3) if 1 + n % 7 & 1 << k] for n in range(42)]
UNUSED = {
    "same": lambda n: 3,
    "none": lambda n: "",
    "name": lambda n: f"name {n}",
    "count": lambda n: n + 1,
    "later": lambda n: n % 2,
    "tall": lambda n: f'"{n + 1},5"',
}
LEFT_OUT = (
    "chosen left out: same: all rows have the same value",
    "chosen left out: none: all rows are empty",
    "chosen left out: later: only in the training table",
    "chosen left out: name: few of its texts repeat (60 distinct texts in 60 rows)",
    "chosen left out: count: it looks like a row number",
    "warning mixed: tall is left out: 0% of the values are numbers, but others look like '1,5'",
    "numeric_columns=('size',), categorical_columns=()",
)
REGRESSION = ("target='regression', metric='rmse'", "num_classes=0")
SINGLE = "warning single: 1 label with only one row"
DAMAGED = "weight is left out: 99% of the values are numbers, but others look like 'oops'"


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        # The target follows from labels and sample, whose form suggests the metric.
        (
            goal(lambda n: f"t{n % 3} t{n % 2}x", "t0"),
            ("target='multilabel', metric='f1'", "num_classes=5", "each text is a single label"),
        ),
        (goal(lambda n: "ab"[n % 2] + " " + "xyz"[n // 2 % 3], "a x"), ("num_classes=6, t",)),
        (goal(lambda n: ("no", "yes")[n % 2], "0.5"), ("target='classes', metric='auc'",)),
        (goal(lambda n: "abc"[n % 3], "a b c"), ("target='classes', metric='map@3'",)),
        (
            goal(lambda n: n % 5, "0"),
            (
                *("target='classes', metric='accuracy'", 'target="ordinal"'),
                "If the competition page specifies another",
            ),
        ),
        (goal(lambda n: n % 5, "0.0"), REGRESSION),
        (goal(lambda n: n % 5 if n < 26 else n * n, "0"), REGRESSION),
        # A few such numbers do not make a regression; more than fifty are likelier amounts.
        (
            labels_of(*"uvw" * 7, *"uvx"),
            (SINGLE, "warning rare: 3 labels with fewer than 10 rows", "num_classes=4"),
        ),
        (
            columns(180, sold=lambda n: n % 60),
            ("unknown labels: if the 60 numbers are class names",),
        ),
        (several(lambda n: n % 2), ("label_column=('one', 'two')", "'multilabel'", "'auc'")),
        (
            several(lambda n: n / 3),
            ("label_column=('one', 'two')", "'regression'", "metric='rmse'"),
        ),
        # Votes and probabilities of classes: the sample's rows, or their own, sum to 1.
        (
            shares(counts),
            (*SOFT, "'kl_divergence'", "each row of the sample submission sums to 1", "'dog' has"),
        ),
        (shares(counts, (0, 0, 0)), ("target='regression'",)),
        (
            shares(lambda n: [round(count / sum(counts(n)), 3) for count in counts(n)], (0, 0, 0)),
            (*SOFT, "'kl_divergence'", "each row sums to 1", 'set target="regression"'),
        ),
        (
            shares(lambda n: [int(n * n % 5 % 3 == k) for k in range(3)]),
            (*SOFT, "metric='log_loss'", 'set target="multilabel"'),
        ),
        (
            shares(lambda n: [int(n * n % 5 % 3 == k) for k in range(3)], (0, 0, 0)),
            ("target='multilabel'", "the columns may be classes"),
        ),
        (shares(lambda n: [n / 80, 0.5, 0.5 - n / 80], (1, 2, 3)), (*SOFT,)),
        (sample_of("id,x,y,z", 0.3, 0.3, 0.3), ("metric='log_loss'", "label_column='kind'")),
        (sample_of("image,kind", "x"), ("ids: 'id', because 100% of its texts are image file",)),
        (of_two("dead", "recovered"), ("unknown positive: ", "data.positive_label='dead'")),
        (
            columns(80, price=lambda n: f'"{n % 20},50"'),
            ("warning mixed: price is read as a category: 0% of the values are numbers",),
        ),
        (
            MIXED,
            (
                *("train_csv='labels/all.csv'", "train_images=('part_0', 'part_1')", "suffix='*'"),
                *("test_images='held'", "id_column='name', label_column='kind'", "RGB 20, L 5"),
                *("height=160, width=224, channels=3", "resize='stretch'", "Reduced to 64 pixels"),
            ),
        ),
        (
            IN_FOLDERS,
            (
                *("train_csv=None", "train_images='train'", "label_column='animal'"),
                *(
                    "3 folders in train/ are named after labels",
                    "suffix='.png'",
                    "test_images='test'",
                ),
                *("36 examples", "num_classes=3", "the 5 test examples"),
            ),
        ),
        (
            IN_FOLDERS | {f"val/cat/{n}.png": png(noise(12, 12)) for n in range(4)},
            ("unknown folders: there are also folders for these labels in val", "36 examples"),
        ),
        (
            IN_FOLDERS | {"sample_submission.csv": EACH},
            ("metric='log_loss'", "label_column='label'", "suffix=''", "36 examples"),
        ),
        (
            # A list of the classes is no table of labels.
            IN_FOLDERS
            | {"classes.csv": csv("number,animal_name", (0, "cat"), (1, "dog"))}
            | {"train/loose.png": png(noise(12, 12))},
            ("train_csv=None", "1 image directly in train/ not used"),
        ),
        *(
            (
                goal(lambda n, between=between: f'"{between.join(SEVERAL[n])}"', '"cat"'),
                ("target='multilabel'", "num_classes=3", f"label_separator={between!r}"),
            )
            for between in (",", "; ", "|")
        ),
        # Columns that are only numbered are pixels only if they hold levels.
        (numbered("", lambda n: n / 8 - 3), ("kind='table'",)),
        (numbered("x", lambda n: n % 2), ("kind='table'",)),
        (numbered("x", lambda n: n % 256), ("kind='pixels'",)),
        (PIXELS, ("kind='pixels'", "height=6, width=10, channels=1")),
        (
            columns(100, text=lambda n: SENTENCES[n]),
            ("texts in text", "and size (to use only columns"),
        ),
        # Numbers that are several labels repeat from row to row; run lengths do not.
        (
            columns(60, label="tags", sold=lambda n: CHOSEN[n % 15], sample="1 3"),
            ("target='multilabel'", "num_classes=6"),
        ),
        (columns(**UNUSED, alone="later"), LEFT_OUT),
        (damaged("train.csv", b",2.51,", b",oops,"), (DAMAGED, "numeric_columns=('size',)")),
        (damaged("test.csv", b",7.51\n", b",oops\n"), (DAMAGED, "numeric_columns=('size',)")),
        # What reveals the label: ids by their order or beginning; or the number of a ticket.
        (columns(sold=lambda n: n // 30), ("warning ids: rows with consecutive numbers in their",)),
        (
            columns(ids=lambda n: f"{'ab'[n * 5 % 2]}{n * 7919 % 1000}"),
            ("warning ids: the id's prefix predicts the label of 100%",),
        ),
        (
            columns(boat=lambda n: "xyuv"[n * 5 % 2 + 2 * (n % 2)]),
            ("warning leak: 'boat' alone determines the label of every row",),
        ),
        (
            columns(tax=lambda n: 99 * (n * 5 % 2) + size(n)),
            ("warning leak: 'tax' alone determines",),
        ),
        (
            labels_of(*(("xyz"[n % 3], f"p{n // 4}") for n in range(24)), header="id,kind,patient"),
            ("unknown groups: ", "set data.group_column='patient'", "group_column=None"),
        ),
        (
            WITH_MASKS,
            ("unknown folders: train_masks/ also has files", "train_images='train_images'"),
        ),
        # A copy in the test set is no reason to group.
        (PICTURES | {"test/b1.png": PICTURES["train/a4.png"]}, ("group_duplicates=False",)),
        (without("b3")(pictures(test=12)), ("warning missing: 1 of 12 test images have no file",)),
    ],
)
def test_inspect_reports_what_a_person_has_to_know_of_a_folder(files, facts, tmp_path):
    """In a finding, or in the proposed config."""
    said = report(*proposed(put(tmp_path, files)))

    assert [fact for fact in facts if fact not in said] == []


CLASSES = np.random.default_rng(0).permutation(600) // 4


@pytest.mark.parametrize(
    ("files", "absent"),
    [
        (of_two(0, 1), "unknown positive"),
        (columns(60, 60, body_site=lambda n: "xyz"[n * 7 % 3]), "unknown groups"),
        # In order of appearance, the numbers of classes would rise with the ids.
        (columns(600, sold=lambda n: f"kind {CLASSES[n % 600]}", sample="kind 1"), "warning ids"),
    ],
    ids=["0 and 1", "sites of both sets", "many classes in random order"],
)
def test_inspect_does_not_warn_of_what_is_usual(files, absent, tmp_path):
    assert absent not in report(*proposed(put(tmp_path, files)))


# What is wrong with it


def test_planted_duplicates_and_corrupt_files_are_found(tmp_path):
    """A file with two labels, a copy in the test set, a picture saved again, a corrupt file."""
    files = pictures(train=240)
    files["train/a7.png"] = files["train/a0.png"]
    files["test/b1.png"] = files["train/a4.png"]
    bright = np.clip(noise(12, 12).astype(int) // 2 + 40, 0, 255).astype(np.uint8)
    files["train/a9.png"], files["train/a12.png"] = png(bright), png(bright + 1)
    files["train/a2.png"] = files["train/a2.png"][:60]

    found, _ = proposed(put(tmp_path, files))

    pairs = set()
    for d in found.duplicates:
        other = (found.inputs.test if d.test else found.inputs.train).id(d.other)
        pairs.add((found.inputs.train.id(d.one), other, d.near, d.conflicting))
    near = ("a9", "a12", True, False)
    assert pairs == {("a0", "a7", False, True), ("a4", "b1", False, False), near}
    assert set(found.inputs.train.broken) == {"a2"}
    said = texts(found, "warning")
    assert "1 test example with the same content as a training example: a4 and b1" in said
    assert "Labels differ in 1 pair" in said
    assert "1 training image and 0 test images cannot be decoded: a2: " in said
    shown = page.write(found, "", tmp_path / "page.html").read_text()
    assert 'training row 3"' not in shown and 'training row 4"' in shown


# What cannot be described


def replaced(name, change):
    """Return a change of the bytes of one file."""
    return lambda files: files | {name: change(files[name])}


def train(row, header="id,size,sold", rows=9):
    """Return a change that writes another training table."""
    return lambda files: files | {"train.csv": csv(header, *map(row, range(rows)))}


def whole(files):
    """Write the ids of the training set, and no others, with the endings of their files."""
    rows = csv("id,kind", *((f"a{n}.png", "xyz"[n % 3]) for n in range(24)))
    return files | {"train.csv": rows}


def commas_everywhere(files):
    """Write the only column that a model could read with commas in both tables."""
    tests = csv("id,size", *((1000 + n, f'"{n},5"') for n in range(9)))
    return train(lambda n: (n, f'"{n},25"', n % 2), rows=40)(files | {"test.csv": tests})


def unclear_label(files):
    """Ask for a label that no column is called by, beside two columns that the test set lacks."""
    sample = csv("id,answer", *((1000 + n, 0) for n in range(9)))
    labelled = files["train.csv"].replace(b"colour", b"shape")
    return files | {"sample_submission.csv": sample, "train.csv": labelled}


def labelled(label, rows=9):
    """Return a change that gives each row this label."""
    return train(lambda n: (n, size(n), label(n)), rows=rows)


def unfit(files):
    """Make a text a label that cannot be one, where a submission holds labels."""
    sample = csv("id,sold", *((1000 + n, "yes") for n in range(9)))
    change = labelled(lambda n: ("yes", "no", "NA")[n % 3], rows=61)
    return change(files) | {"sample_submission.csv": sample}


def masks(header: str, *rows: object) -> dict[str, bytes]:
    """Return the files of a segmentation, whose submission has the header of its table."""
    return {
        "train.csv": csv(header, *rows),
        "sample_submission.csv": csv(header, *((90 + n, "1 1") for n in range(4))),
        **{f"train/images/{n}.png": png(noise(9, 9)) for n in range(20)},
    }


RUNS = [" ".join(f"{start} {2 + n % 3}" for start in range(n + 1, 80, 9)) for n in range(20)]
THIRDS = [(n // 2, RUNS[n], n % 2) for n in range(20)]
MASK_FILES = {
    "train.csv": csv("id", *((n,) for n in range(20))),
    "sample_submission.csv": csv("id,label", *((90 + n, 0) for n in range(4))),
    **{f"train/images/{n}.png": png(noise(9, 9)) for n in range(20)},
    **{f"train/masks/{n}.png": png(noise(9, 9)) for n in range(20)},
}


SENTENCES_ALONE = {
    "train.csv": csv("id,text,goal", *((n, SENTENCES[n], n % 2) for n in range(100))),
    "test.csv": csv("id,text", *((900 + n, SENTENCES[100 + n]) for n in range(25))),
    "sample_submission.csv": csv("id,goal", *((900 + n, 0) for n in range(25))),
}
ANSWERS = [
    (n, size(n), "rgb"[n % 3], " ".join(f"{word}{n}" for word in "abcdef")) for n in range(40)
]
FIRST_THREE = [f"train_images/{n}." for n in range(3)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: {}, "No tables (.csv) or images were found"),
        (lambda files: {"train.zip": b"PK", "notes.txt": b"x"}, "Unpack them: unzip"),
        (
            lambda files: files | {"my_submission.csv": files["sample_submission.csv"]},
            "--sample my_submission.csv",
        ),
        (without("train.csv"), "Finish the download, write a table"),
        (
            replaced("train.csv", lambda text: text.partition(b"\n")[2]),
            "Add a line of column names at the top",
        ),
        (
            replaced("train.csv", lambda text: text.partition(b"\n")[0]),
            "has no label in",
        ),
        (train(lambda n: (n // 2, n, n % 2), rows=40), "has 20 duplicate ids"),
        (labelled(lambda n: 1), "has only one label in"),
        (labelled(lambda n: f"kind {max(n, 3)}"), "in only one row"),
        (labelled(lambda n: f'"{n},5"', rows=40), "with commas in 'sold', such as '0,5'"),
        (labelled(lambda n: "" if n else 1), "without a label"),
        (unfit, "1 labels that cannot be submitted, for example 'NA'"),
        (lambda _: without(*FIRST_THREE)(WITH_MASKS), "3 of 20 images are missing in"),
        (lambda _: pictures(ending=".Jpg"), "is named 'a0.Jpg', and one id is 'a0'"),
        (lambda _: without("test/")(pictures()), "no image for any id of sample_submission.csv"),
        (lambda _: whole(pictures()), "has file extensions in the ids of only one set"),
        (train(lambda n: (n, n, n % 2), "id,other,sold"), "No inputs were found for"),
        (
            commas_everywhere,
            "None of the columns can be used: size: 0% of the values are numbers, but",
        ),
        (unclear_label, "separated by commas: --label shape"),
        # It is told by what it is, not by what is missing for something else.
        (
            lambda _: (
                masks("id,EncodedPixels") | {"train.csv": csv("id,EncodedPixels,class", *THIRDS)}
            ),
            "masks for 2 classes in 'class'",
        ),
        (lambda _: MASK_FILES, "docs/segmentation.md"),
        (lambda _: without("train.csv")(MASK_FILES), "docs/segmentation.md"),
        (lambda _: without("sample")(MASK_FILES), "docs/segmentation.md"),
        (lambda _: without("test.csv")(SENTENCES_ALONE), "No inputs were found for"),
        (train(lambda n: ANSWERS[n], "id,size,colour,sold", 40), "as described in docs/text.md"),
    ],
)
def test_a_folder_that_cannot_be_described_gets_one_clear_message(change, said, tmp_path):
    put(tmp_path, change(table()))

    with pytest.raises((DataError, SubmissionError)) as refused:
        proposed(tmp_path)

    assert said in str(refused.value) and len(str(refused.value).splitlines()) > 1


# Pictures in the alpha channel


def drawn(number: int, colour: int) -> bytes:
    """Return a drawing whose colours are flat: only the alpha channel shows it."""
    alpha = Image.new("L", (16, 16))
    ImageDraw.Draw(alpha).line((number % 16, 0, 15 - number % 7, 15), fill=255, width=4)
    image = Image.new("RGBA", (16, 16), (colour, colour, colour, 0))
    image.putalpha(alpha)
    return png(np.asarray(image))


@pytest.mark.parametrize(("colour", "background"), [(0, "white"), (255, "black")])
def test_a_picture_in_the_alpha_channel_is_found_and_read(colour, background, tmp_path):
    """On the colour that shows it, in training and in inference."""
    images = [name for name in pictures() if name.endswith(".png")]
    files = pictures() | {name: drawn(n, colour) for n, name in enumerate(images)}

    found, config = proposed(put(tmp_path, files))

    assert config.data.alpha == background
    assert "the alpha channel of 30 images holds the content" in texts(found, "chosen")
    trained = dataset.read_training(tmp_path, config).inputs
    for inputs in (trained, read_test(tmp_path, config).inputs(np.arange(6))):
        assert (inputs.std(axis=(1, 2, 3)) > 50).all()


@pytest.mark.parametrize("opaque", [True, False])
def test_an_alpha_channel_is_dropped_if_the_colours_show_a_picture(opaque, tmp_path):
    """A finding reports the channel unless images are opaque."""
    pixels = noise(30, 12, 12, 4)
    pixels[..., 3] = 255 if opaque else pixels[..., 3]
    images = [name for name in pictures() if name.endswith(".png")]
    files = pictures() | {name: png(pixels[n]) for n, name in enumerate(images)}

    found, config = proposed(put(tmp_path, files))

    assert config.data.alpha == "drop"
    said = "the alpha channel of 30 images is dropped" in texts(found, "unknown")
    assert said != opaque and ("alpha" in texts(found, "unknown")) != opaque


# What is ambiguous can be given

# A folder whose name and labels say nothing.
UNNAMED = {
    name.replace("train/", "a/b/").replace("cat", "x"): IN_FOLDERS[name] for name in IN_FOLDERS
}
MORE = {
    "my_submission.csv": table()["sample_submission.csv"],
    "train_more.csv": table()["train.csv"].replace(b"sold", b"gone"),
}
BOTH = [(n, RUNS[n], n % 2) for n in range(20)]


@pytest.mark.parametrize(
    ("files", "given", "facts"),
    [
        (UNNAMED, Given(train="a/b"), ("train_csv=None", "train_images='a/b'")),
        (
            table() | MORE,
            Given("sample_submission.csv", "train_more.csv", "test.csv", ("gone",)),
            ("train_csv='train_more.csv'", "label_column='gone'"),
        ),
    ],
)
def test_options_resolve_an_ambiguous_folder(files, given, facts, tmp_path):
    """These are the options in the messages."""
    with pytest.raises((DataError, SubmissionError)):
        proposed(put(tmp_path, files))

    said = report(*proposed(tmp_path, given))

    assert [fact for fact in facts if fact not in said] == []


def test_an_option_picks_the_label_beside_masks(tmp_path):
    files = masks("id,rle_mask") | {"train.csv": csv("id,rle_mask,coat", *BOTH)}
    files |= {f"test/{n}.png": png(noise(9, 9)) for n in range(90, 94)}

    said = report(*proposed(put(tmp_path, files), Given(labels=("coat",))))

    assert "target='classes'" in said and "label_column='coat'" in said
    assert inspection.inspect(tmp_path).target.kind == "custom"


# The command


def test_the_command_writes_config_and_page_but_never_overwrites_a_config(tmp_path, capsys):
    """The next command, which it prints, can be pasted even if a path has a space."""
    place = tmp_path / "my data"
    folder, config = put(place / "leaves", pictures()), place / "leaves.py"
    words = ["inspect", str(folder), "--write", str(config), "--page", str(place / "page.html")]

    first = main([*words, "--json"])
    *lines, following, last = capsys.readouterr().out.splitlines()
    end = json.loads(last)
    again = main([*words, "--json"])

    assert (first, again) == (0, 2)
    (assumed,) = [line for line in lines if line.startswith("unknown  competition")]
    assert "assumed to be 'leaves'" in assumed
    assert {str(folder), str(config)} <= set(shlex.split(following))
    refused = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "already exists" in refused["error"]
    assert configs.from_json(end["proposed"]) == configs.load(end["written"])
    assert end["competition"] == "leaves"
    assert {"found", "chosen", "unknown"} <= {line["level"] for line in end["findings"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("n" * 300, "no such folder"),
        (". --write NotAName", "lower-case letters"),
        (". --write digits", "already exists"),
        (". --write no/such/folder.py", "does not exist"),
        (". --competition a&b", "competition='a&b'"),
        (". --for gpu", "one of tpu-v5e-8, cpu"),
        (". --budget soon", "from 30s to 240h"),
        (". --page no/such/page.html", "mkdir -p no/such"),
        (". --sample ../outside.csv", "no such table"),
        (". --train no.csv", "--train no.csv: no such table"),
        (". --label gone", "has no column gone besides its ids. Available"),
    ],
)
def test_an_invalid_argument_is_refused(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(put(tmp_path, table()))

    assert main(["inspect", *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_the_page_escapes_texts_from_the_folder(tmp_path):
    bad = "<script>alert(1)</script>"
    labels = [(bad, "</pre>", "z")[n % 3] for n in range(24)]
    files = sample_of("id,kind", "z") | {"train.csv": labels_of(*labels)["train.csv"]}
    folder = put(tmp_path / bad.replace("/", ""), files)
    words = ["--competition", "leaves", "--page", str(tmp_path / "page.html")]

    assert main(["inspect", str(folder), *words]) == 0

    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and "default-src 'none'" in page
    assert page.count("<img") == 24 and "http" not in page.replace("http-equiv", "")


def test_findings_are_shown_even_if_the_config_does_not_run(tmp_path, capsys):
    """The page has the findings and the reason, and no config is written."""
    files = pictures() | {
        "sample_submission.csv": csv("id,one,two", *((f"b{n}", 0, 0) for n in range(6)))
    }
    put(tmp_path / "leaves", files)

    words = f"inspect {tmp_path}/leaves --write {tmp_path}/x.py --page {tmp_path}/x.html"
    code = main(words.split())

    shown = capsys.readouterr()
    assert (code, (tmp_path / "x.py").exists()) == (1, False)
    assert "has columns one, two after the id" in shown.err
    assert "image files: training images in train/" in shown.out
    assert "The proposed config cannot run" in (tmp_path / "x.html").read_text()
