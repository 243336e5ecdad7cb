"""A bundle is one notebook with its package, and reproducible. The gate names every problem of a
bundle, without secrets.
"""

import ast
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slugify import slugify

from deploy import bundle, gate
from deploy.errors import UsageError
from deploy.project import KERNELS, PAIR, Project
from tests.deploy.invoked import ROOT
from tests.deploy.small import commit
from tests.shipped import DIGITS, there

ARTIFACT, CHECKPOINT, OWN = "ann/digits-artifact", "ann/digits-checkpoint", "keras/weights"
BEGUN = {"earlier": {"init_from": f"{ARTIFACT}/2"}}
EXPECT = {"run_id": "r1", "weights_sha256": "ab"}
RESUMED = {"run_id": "r1", "step": 2, "checkpoint": "checkpoints/step-00000002", "files": {}}


def build(
    root: Path, kernel: str = "train-tpu", owner: str = "ann", expect: Any = EXPECT, **more: Any
) -> bundle.Bundle:
    """Build a kernel of the project; an inference expects an artifact, and nothing else does."""
    ours = Project(root, "digits", "digits", "dataset", root / "runs", root / "out")
    expect = {} if expect is EXPECT and not kernel.startswith("infer") else expect
    project = dataclasses.replace(ours, **more)
    others = [member["config"] for member in expect.get("members", ())]
    code = bundle.read(project, kernel, others)
    return bundle.build(project, code, bundle.Inputs(expect), owner)


def sources(built: bundle.Bundle) -> list[str]:
    return [cell["source"] for cell in json.loads(built.notebook.read_text())["cells"]]


def written(built: bundle.Bundle) -> dict[str, str]:
    """Return {path: text} of the files that the notebook's cells write."""
    cells = [text.split("\n", 1) for text in sources(built) if text.startswith("%%writefile ")]
    return {line.removeprefix("%%writefile "): text for line, text in cells}


def test_the_same_project_gives_the_same_bytes(root):
    """Code and notebook are one version."""
    first, second = (build(root, builds=root / each) for each in "ab")

    for name in ("train-tpu.ipynb", "kernel-metadata.json"):
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes()
    assert first.sha256 == second.sha256


def test_the_package_and_the_chosen_config_travel_as_they_are(root):
    """Hidden files, caches, other configs, credentials and notes stay at home. What %%writefile
    writes ends with one newline and keeps every other character; it refuses an empty cell.
    """
    built = build(root)
    files = written(built)

    assert files["pipeline/model.py"] + "\n" == (root / "pipeline" / "model.py").read_text()
    assert files["pipeline/__init__.py"].strip()
    ours = ("__init__.py", "model.py", "configs/__init__.py", "configs/digits.py")
    assert set(files) == {"bundle.json", *(f"pipeline/{name}" for name in ours)}
    assert "at home" not in built.notebook.read_text()


def test_a_training_for_another_machine_is_the_same_code_in_another_bundle(root):
    """A rehearsal counts for both."""
    tpu, pair = build(root), build(root, runtime=PAIR)

    assert pair.code.sha256 == tpu.code.sha256 and pair.sha256 != tpu.sha256
    assert (pair.metadata["enable_tpu"], pair.metadata["enable_gpu"]) == (False, True)
    assert json.loads(written(pair)["bundle.json"])["machine_shape"] == "NvidiaTeslaT4"


def test_every_part_counts_in_the_sha256(root):
    """A different expectation, competition, owner, module or cell makes a different bundle."""
    asked = ({}, {"expect": {**EXPECT, "run_id": "r2"}}, {"competition": "other"}, {"owner": "bob"})
    seen = {build(root, "infer-gpu", **more).sha256 for more in asked}
    for path in ("pipeline/model.py", "kernels/infer-gpu/notebook.py"):
        (root / path).write_text("# %%\nchanged = True\n")
        seen.add(build(root, "infer-gpu").sha256)

    assert len(seen) == 6


def test_a_config_of_several_files_travels_whole(root):
    """Even a file that nothing imports counts in the sha256 of the code."""
    own, texts = (
        root / "pipeline" / "configs" / "leaves",
        {"__init__.py": "from .losses import f\n"},
    )
    texts |= {"losses.py": "import pipeline.model\nf = 1\n", "nets/later.py": "later = 1\n"}
    for name, text in {**texts, ".ipynb_checkpoints/losses-checkpoint.py": "f = (\n"}.items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)

    made = written(build(root, config="leaves"))

    folder = "pipeline/configs/leaves/"
    assert {name for name in made if folder in name} == {f"{folder}{name}" for name in texts}


def test_a_local_change_shows_in_the_provenance(root):
    """A result without a commit cannot be reproduced; files that do not travel do not count."""
    commit(root)
    (root / "README.md").write_text("does not travel")
    (root / ".gitignore").write_text("mine.py\n")
    (root / "mine.py").write_text("CONFIG = 2\n")

    ours, mine = build(root), build(root, config=str(root / "mine.py"), builds=root / "a")
    (root / "pipeline" / "model.py").write_text("changed = True\n")

    assert len(ours.code.git_commit) == 40
    later = build(root)
    assert [one.code.git_dirty for one in (ours, mine, later)] == [False, True, True]
    assert "with local changes" in sources(later)[0]
    assert written(mine)["pipeline/configs/mine.py"] == "CONFIG = 2"
    assert json.loads(written(mine)["bundle.json"])["config"] == "mine"


def test_a_build_writes_nothing_into_the_user_s_repository(root):
    """`git status` refreshes its index; a build that was interrupted then left index.lock, and no
    commit was possible.
    """
    commit(root)
    os.utime(root / "pipeline" / "model.py", (1, 1))  # the index knows another time
    index = (root / ".git" / "index").read_bytes()

    assert build(root).code.git_dirty is False

    assert (root / ".git" / "index").read_bytes() == index


def mounting(root: Path, kernel: str, names: object, kind: str = "dataset_sources") -> None:
    """Write sources of one's own into that kernel's metadata."""
    path = root / "kernels" / kernel / "kernel-metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), kind: names}))


TRAIN, INFER = "train-tpu", "infer-gpu"


@pytest.mark.parametrize(
    ("mounted", "kernel", "more", "datasets", "kernels"),
    [
        ([], INFER, {"handoff": "kernel"}, [], ["ann/digits-train-tpu"]),
        # Those of one's own, too; the handed-over one stays the first.
        (["bob/more/2"], INFER, {}, [ARTIFACT, "bob/more/2"], []),
        # What a training begins with is mounted when it resumes, too: later folds begin with it.
        ([OWN], TRAIN, BEGUN, [OWN, f"{ARTIFACT}/2"], []),
        ([OWN], TRAIN, BEGUN | {"expect": RESUMED}, [CHECKPOINT, OWN, f"{ARTIFACT}/2"], []),
        # A folder of this machine is on no Kaggle, and an inference needs none.
        ([], INFER, {"earlier": {"init_from": "out"}}, [ARTIFACT], []),
        # What the training reads is mounted by itself; a version that is listed will do, and a
        # dataset that begins alike is another one.
        ([], TRAIN, {"needs": [OWN]}, [OWN], []),
        ([], INFER, {"needs": [OWN]}, [ARTIFACT], []),
        ([f"{OWN}/3"], TRAIN, {"needs": [OWN]}, [f"{OWN}/3"], []),
        ([f"{OWN}-small"], TRAIN, {"needs": [OWN]}, [OWN, f"{OWN}-small"], []),
    ],
)
def test_handed_over_and_own_sources_are_mounted(root, mounted, kernel, more, datasets, kernels):
    """The artifact as a dataset, or as the output of the train kernel; never both."""
    mounting(root, kernel, mounted)
    made = build(root, kernel, **more).metadata

    assert (made["dataset_sources"], made["kernel_sources"]) == (datasets, kernels)


@pytest.mark.parametrize(
    ("datasets", "more", "said"),
    [
        # A folder of this machine is no dataset, though its name be that of an owner.
        ([OWN], {"needs": [OWN.split("/")[0]]}, "a path on this machine(.|\n)*--model owner"),
        ([], {"needs": ["/home/ann/dinov3"]}, "a path on this machine(.|\n)*--model owner"),
        ([], {"needs": ["../weights"]}, "a path on this machine"),
        # A training begins with a dataset on Kaggle alone.
        (
            [],
            {"earlier": {"init_from": "runs/out/artifact"}},
            "(?s)owner/slug.*pretrained in the config, or publish",
        ),
        # What is no list of datasets is refused with the file in which it stands.
        ("keras/weights", {}, r"(?s)(?=.*dataset_sources).*kernel-metadata\.json"),
        (["keras/../weights"], {}, r"(?s)(?=.*dataset_sources).*kernel-metadata\.json"),
    ],
)
def test_sources_that_cannot_be_mounted_are_refused_before_a_push(root, datasets, more, said):
    mounting(root, "train-tpu", datasets)

    with pytest.raises(UsageError, match=said):
        build(root, **more)


NETWORK, OTHER = "keras/dinov3/keras/dinov3_small/1", "ann/mine/TensorFlow2/default/12"


@pytest.mark.parametrize(
    ("listed", "kernel", "mounted"),
    [
        # One that is named twice is mounted once, however its framework is written.
        ([OTHER.lower(), NETWORK], TRAIN, [OTHER, NETWORK.replace("/keras/", "/Keras/")]),
        # Inference reads the artifact.
        ([], INFER, []),
        ([OTHER], INFER, [OTHER]),
    ],
)
def test_the_training_mounts_the_models_of_the_config_by_kaggles_names(
    root, listed, kernel, mounted
):
    mounting(root, kernel, listed, "model_sources")

    assert build(root, kernel, models=[NETWORK]).metadata["model_sources"] == mounted


@pytest.mark.parametrize(
    "name", ["keras/dinov3/keras/small", "keras/dinov3/kers/small/1", "keras/../keras/small/1", 3]
)
def test_an_invalid_model_name_is_refused_before_a_push(root, name):
    mounting(root, TRAIN, [name], "model_sources")

    with pytest.raises(UsageError, match=r"(?s)(?=.*model_sources).*kernel-metadata\.json"):
        build(root)


@pytest.mark.parametrize("text", ["[1]", "{", '{"id": "ann/x"}'])
def test_invalid_metadata_is_refused(root, text):
    path = root / "kernels" / TRAIN / "kernel-metadata.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=re.escape(str(path))):
        build(root)


def test_a_missing_kernel_is_named_and_nothing_is_written(root):
    with pytest.raises(UsageError, match=r"no kernel 'no-such' .*expected one of: infer-gpu"):
        build(root, "no-such")

    assert not (root / "out").exists()


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{2,70}", fullmatch=True))
@settings(max_examples=40)
def test_every_competition_gives_an_address_that_kaggle_would_make_from_the_title(competition):
    """Kaggle makes the address from the title. If they differed, a later call would find a
    different kernel or none.
    """
    for what in ("train-tpu", "infer-gpu", "artifact"):
        handle = bundle.address("ann", competition, what)
        slug = handle.split("/")[1]
        assert slugify(bundle.title(handle)) == slug and 6 <= len(slug) <= 50


def test_two_long_competitions_that_differ_in_the_year_get_two_kernels():
    """Shortened names stay different."""
    name = "a-competition-with-a-very-long-name-of-fifty-letters-"

    assert len({bundle.address("ann", f"{name}{year}", "train-tpu") for year in (2025, 2026)}) == 2


def test_an_imported_custom_file_travels(root):
    """From the config, through another file, and by a relative import."""
    files = {
        "mine/net.py": "from .layers import block\n",
        "mine/layers.py": "import numpy\nblock = 1\n",
        "pipeline/configs/mine.py": "from mine import net\nfrom .beside import more\n",
        "pipeline/configs/beside.py": "more = 1\n",
    }
    (root / "mine").mkdir()
    for name, text in files.items():
        (root / name).write_text(text)

    assert files.keys() <= written(build(root, config="mine")).keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "from deploy import journal\n",
            r"imports deploy\.journal, which is not available on Kaggle",
        ),
        ("CONFIG = (\n", "is not valid Python"),
        ("from .... import more\n", "is not valid Python: attempted relative import beyond"),
        ("CONFIG = 1  # caf\xe9\n", "is not valid Python: 'utf-8' codec can't decode"),
    ],
)
def test_an_import_that_would_fail_on_kaggle_is_refused(root, text, message):
    """A run that stops in its first cell after hours in the queue costs an evening. Some editors
    save in other encodings.
    """
    (root / "pipeline" / "configs" / "mine.py").write_bytes(text.encode("latin-1"))

    with pytest.raises(UsageError, match=message):
        build(root, config="mine")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_bundle_contains_everything_that_it_imports(kernel, tmp_path):
    """A missing module would stop a session midway."""
    there(f"kernels/{kernel}/notebook.py")
    made = build(ROOT, kernel, builds=tmp_path, config=str(DIGITS))
    files, own = written(made), [text for text in sources(made) if "from pipeline" in text]
    modules = [text for name, text in files.items() if name.endswith(".py")]

    for text in [*modules, *(text for text in own if not text.startswith(("%%", "#")))]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                place = node.module.replace(".", "/")
                ours = place.split("/")[0] in ("formats", "pipeline", "workbench", "deploy")
                found = {f"{place}.py", f"{place}/__init__.py"} & files.keys()
                assert found or not ours, f"{node.module} is not in the bundle"


KEY = "0123456789abcdef" * 2


@pytest.fixture
def good(built):
    """Return a notebook and metadata that pass."""
    return json.loads(built.text), dict(built.metadata)


def check(notebook: dict, metadata: dict, offline: bool = False) -> None:
    gate.check(json.dumps(notebook), metadata, offline=offline)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("docker_image", "gcr.io/x", "CPU run"),
        ("keywords", ["tpu"], "keywords"),
        ("id", "ann/" + "x" * 51, "5 to 50"),
        ("is_private", "true", "is_private"),
        ("machine_shape", "TpuV38", "expected one of .*TpuV5E8"),
        ("machine_shape", "NvidiaTeslaT4", "do not match"),
        ("language", "r", "python"),
    ],
)
def test_metadata_that_kaggle_would_silently_accept_is_refused(good, key, value, said):
    """The official client checks almost none of these; each costs a run."""
    notebook, metadata = good

    with pytest.raises(UsageError, match=said):
        check(notebook, {**metadata, key: value})


def test_inference_may_not_ask_for_the_internet(good):
    """A code competition refuses such a notebook, after it has run."""
    with pytest.raises(UsageError, match="enable_internet"):
        check(*good, offline=True)


def test_all_reasons_are_named_at_once(good):
    """One round of edits is enough."""
    notebook, metadata = good
    notebook["cells"][1]["source"] = "x" * 960_000

    with pytest.raises(UsageError, match=r"(?s)language is.*960,000"):
        check(notebook, {**metadata, "language": "r"})


# Secrets; tests/deploy/client/test_secrets.py has all forms of them


def test_a_planted_key_stops_the_bundle_and_is_not_repeated(root):
    """A pushed notebook may be shared later, and its versions cannot be deleted."""
    (root / "pipeline" / "model.py").write_text(f"KEY = '{KEY}'\nUSERNAME = 'ann'\n")

    with pytest.raises(UsageError, match=r"(?s)model\.py.*pragma: allowlist secret") as caught:
        build(root)

    assert KEY not in str(caught.value) and not (root / "out").exists()


# Where a push can hold a token. The line that names a cell is cut, perhaps within a key.
PLACES = [
    ("cell", '{"source": "1\\nb = TOKEN"}'),
    ("cell", f'{{"source": "{"x" * 40} TOKEN"}}'),
    ("cell", '{"outputs": [{"output_type": "stream", "text": "TOKEN"}]}'),
    ("notebook", '{"by": "TOKEN"}'),
    ("kernel", '{"dataset_sources": ["ann/TOKEN"]}'),
]


# A token of Kaggle's, and one that no printed line is searched for.
@pytest.mark.parametrize("token", [f"KGAT_{KEY}", f"xoxb-{'12345678901-' * 2}{KEY}"])
@pytest.mark.parametrize(("part", "holds"), PLACES)
def test_a_secret_anywhere_in_a_push_is_refused_and_not_repeated(good, part, holds, token):
    notebook, metadata = good
    parts = {"cell": notebook["cells"][-1], "notebook": notebook["metadata"], "kernel": metadata}
    parts[part].update(json.loads(holds.replace("TOKEN", token)))

    with pytest.raises(UsageError, match=" seems to contain") as caught:
        check(notebook, metadata)
    assert KEY[:6] not in str(caught.value)
