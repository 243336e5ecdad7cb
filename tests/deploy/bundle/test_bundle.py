"""A bundle is one notebook that carries its package, and the same project gives the same one; the
gate names every reason why it may not be pushed, and shows no key while it does.
"""

import ast
import copy
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slugify import slugify

from deploy import bundle, gate, secrets
from deploy.errors import UsageError
from deploy.project import PAIR, Project
from tests.deploy.invoked import ROOT
from tests.deploy.small import commit

ARTIFACT, CHECKPOINT, OWN = "ann/digits-artifact", "ann/digits-checkpoint", "keras/weights"
BEGUN = {"first_stage": f"{ARTIFACT}/2"}
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
    """Code and notebook are one version only if a version has one form."""
    first, second = build(root, builds=root / "a"), build(root, builds=root / "b")

    assert first.notebook.read_bytes() == second.notebook.read_bytes()
    described = [(b.folder / "kernel-metadata.json").read_bytes() for b in (first, second)]
    assert described[0] == described[1]
    assert first.sha256 == second.sha256


def test_the_package_and_the_chosen_config_travel_as_they_are(root):
    """Hidden files, caches, other configs, credentials and notes stay at home. What %%writefile
    writes ends with one newline and keeps every other character; it refuses an empty cell.
    """
    built = build(root)
    files = written(built)

    assert files["pipeline/model.py"] + "\n" == (root / "pipeline" / "model.py").read_text()
    assert files["pipeline/__init__.py"].strip()
    assert set(files) == {
        "pipeline/__init__.py",
        "pipeline/model.py",
        "pipeline/configs/__init__.py",
        "pipeline/configs/digits.py",
        "bundle.json",
    }
    assert "at home" not in built.notebook.read_text()


def test_a_training_for_another_machine_is_the_same_code_in_another_bundle(root):
    """What was rehearsed for the one is rehearsed for the other."""
    tpu, pair = build(root), build(root, runtime=PAIR)

    assert pair.code.sha256 == tpu.code.sha256 and pair.sha256 != tpu.sha256
    assert (pair.metadata["enable_tpu"], pair.metadata["enable_gpu"]) == (False, True)
    assert json.loads(written(pair)["bundle.json"])["machine_shape"] == "NvidiaTeslaT4"


def test_every_part_counts_in_the_sha256(root):
    """Another module, cell, metadata or expectation makes another bundle."""
    seen = {build(root).sha256, build(root, "infer-gpu").sha256}
    seen.add(build(root, "infer-gpu", expect={**EXPECT, "run_id": "r2"}).sha256)
    seen.add(build(root, competition="other-digits").sha256)
    seen.add(build(root, owner="bob").sha256)
    (root / "pipeline" / "model.py").write_text("changed = True\n")
    seen.add(build(root).sha256)
    (root / "kernels" / "train-tpu" / "notebook.py").write_text("# %%\nprint()\n")
    seen.add(build(root).sha256)

    assert len(seen) == 7


def test_a_config_of_several_files_travels_whole(root):
    """Also a file that nothing imports yet: all count in the sha256 of the code."""
    own = root / "pipeline" / "configs" / "leaves"
    (own / "nets").mkdir(parents=True)
    (own / "__init__.py").write_text("from .losses import focal\nCONFIG = 2\n")
    (own / "losses.py").write_text("import pipeline.model\nfocal = 1\n")
    (own / "nets" / "later.py").write_text("later = 1\n")
    (own / ".ipynb_checkpoints").mkdir()
    (own / ".ipynb_checkpoints" / "losses-checkpoint.py").write_text("focal = (\n")

    made = build(root, config="leaves")

    names = {name for name in written(made) if "/leaves/" in name}
    folder = "pipeline/configs/leaves"
    assert names == {f"{folder}/{name}" for name in ("__init__.py", "losses.py", "nets/later.py")}


def test_a_local_change_shows_in_the_provenance(root):
    """A result without a commit cannot be made again; what does not travel does not count."""

    commit(root)
    (root / "README.md").write_text("does not travel")
    assert build(root).code.git_dirty is False and len(build(root).code.git_commit) == 40
    (root / ".gitignore").write_text("mine.py\n")
    (root / "mine.py").write_text("CONFIG = 2\n")
    made = build(root, config=str(root / "mine.py"))
    assert made.code.git_dirty is True
    assert written(made)["pipeline/configs/mine.py"] == "CONFIG = 2"
    assert json.loads(written(made)["bundle.json"])["config"] == "mine"
    assert build(root).code.git_dirty is False

    (root / "pipeline" / "model.py").write_text("changed = True\n")

    assert build(root).code.git_dirty is True


def test_a_build_writes_nothing_into_the_user_s_repository(root):
    """`git status` refreshes its index; a build that was interrupted then left index.lock, and no
    commit was possible.
    """
    commit(root)
    os.utime(root / "pipeline" / "model.py", (1, 1))  # the index knows another time
    index = (root / ".git" / "index").read_bytes()

    assert build(root).code.git_dirty is False

    assert (root / ".git" / "index").read_bytes() == index


def mounting(root: Path, kernel: str, datasets: object) -> None:
    """Write datasets of one's own into that kernel's metadata."""
    path = root / "kernels" / kernel / "kernel-metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dataset_sources": datasets}))


@pytest.mark.parametrize(
    ("mounted", "kernel", "more", "datasets", "kernels"),
    [
        ([], "infer-gpu", {}, [ARTIFACT], []),
        ([], "infer-gpu", {"handoff": "kernel"}, [], ["ann/digits-train-tpu"]),
        # As pretrained weights are; the handed-over one stays the first.
        ([OWN], "train-tpu", {}, [OWN], []),
        (["bob/more/2"], "infer-gpu", {}, [ARTIFACT, "bob/more/2"], []),
        # What a training begins with is mounted until it resumes: its checkpoint has the weights.
        ([OWN], "train-tpu", BEGUN, [OWN, f"{ARTIFACT}/2"], []),
        ([OWN], "train-tpu", BEGUN | {"expect": RESUMED}, [CHECKPOINT, OWN], []),
        # A folder of this machine is on no Kaggle, and an inference needs none.
        ([], "infer-gpu", {"first_stage": "out"}, [ARTIFACT], []),
        # What the training reads has to be mounted: any version of it will do.
        ([f"{OWN}/3"], "train-tpu", {"needs": OWN}, [f"{OWN}/3"], []),
    ],
)
def test_what_is_handed_over_and_what_is_one_s_own_is_mounted(
    root, mounted, kernel, more, datasets, kernels
):
    """The artifact as a dataset, or as the output of the train kernel; never both."""
    mounting(root, kernel, mounted)
    made = build(root, kernel, **more).metadata

    assert (made["dataset_sources"], made["kernel_sources"]) == (datasets, kernels)


def test_a_dataset_that_the_training_reads_has_to_be_mounted(root):
    """Else a machine would be waited for first; one that begins alike is another one."""
    mounting(root, "train-tpu", [f"{OWN}-small"])

    with pytest.raises(UsageError, match=f"mounts {OWN}-small; expected {OWN}"):
        build(root, needs=OWN)


@pytest.mark.parametrize("folder", ["runs/out/artifact", f"{ARTIFACT}/0"])
def test_a_training_begins_with_a_dataset_on_kaggle_alone(root, folder):
    with pytest.raises(UsageError, match=r"(?s)owner/slug.*init_from in the config"):
        build(root, first_stage=folder)


@pytest.mark.parametrize(
    "datasets", ["keras/weights", ["keras/../weights"], [3], {"keras/weights": 1}]
)
def test_what_is_no_list_of_datasets_is_refused(root, datasets):
    """With the file in which it stands."""
    mounting(root, "train-tpu", datasets)

    with pytest.raises(UsageError, match=r"(?s)(?=.*dataset_sources).*kernel-metadata\.json"):
        build(root)


@pytest.mark.parametrize("text", ["[1]", "{", '{"id": "ann/x"}'])
def test_metadata_that_is_no_object_or_sets_what_is_added_is_refused(root, text):
    path = root / "kernels" / "train-tpu" / "kernel-metadata.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=re.escape(str(path))):
        build(root)


@pytest.mark.parametrize("wrong", [{"config": "../../etc/passwd"}, {"kernel": "no-such"}])
def test_a_wrong_argument_is_named_and_nothing_is_written(root, wrong):
    """The message says what was received and what was expected."""
    with pytest.raises(UsageError, match=r"[Ee]xpected"):
        build(root, **wrong)

    assert not (root / "out").exists()


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{2,70}", fullmatch=True))
def test_every_competition_gives_an_address_that_kaggle_would_make_from_the_title(competition):
    """Kaggle makes the address from the title; where they differ, a later call finds another kernel
    or none.
    """
    for handle in (
        bundle.address("ann", competition, "train-tpu"),
        bundle.address("ann", competition, "infer-gpu"),
        bundle.address("ann", competition, "artifact"),
    ):
        slug = handle.split("/")[1]
        assert slugify(bundle.title(handle)) == slug
        assert 6 <= len(slug) <= 50 and 6 <= len(bundle.title(handle)) <= 50


def test_two_long_competitions_that_differ_in_the_year_get_two_kernels():
    """Cutting a name to fit must not make two of them one."""
    name = "a-competition-with-a-very-long-name-of-fifty-letters-"
    handles = {bundle.address("ann", f"{name}{year}", "train-tpu") for year in (2025, 2026)}

    assert len(handles) == 2


def test_a_user_s_own_file_travels_because_it_is_imported(root):
    """From the config, through another file, and by a relative import; none of them is written
    down anywhere.
    """
    own = root / "mine"
    own.mkdir()
    (own / "net.py").write_text("from .layers import block\n")
    (own / "layers.py").write_text("import numpy\nblock = 1\n")
    (root / "pipeline" / "configs" / "mine.py").write_text(
        "from mine import net\nfrom .beside import more\n"
    )
    (root / "pipeline" / "configs" / "beside.py").write_text("more = 1\n")

    travels = set(written(build(root, config="mine")))

    assert {"mine/net.py", "mine/layers.py"} <= travels
    assert "pipeline/configs/beside.py" in travels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import pipeline.nothing\n", "imports pipeline.nothing, and there is no"),
        ("from deploy import journal\n", "imports deploy, which stays at home"),
        ("CONFIG = (\n", "is not Python"),
    ],
)
def test_an_import_that_would_fail_on_kaggle_is_refused_at_home(root, text, message):
    """A machine that is waited for and then stops in the first cell costs an evening."""
    (root / "deploy").mkdir()
    (root / "pipeline" / "configs" / "mine.py").write_text(text)

    with pytest.raises(UsageError, match=message):
        build(root, config="mine")


@pytest.mark.parametrize("kernel", ["train-tpu", "infer-gpu", "prepare-cpu", "bench"])
def test_all_that_a_bundle_imports_of_this_project_is_in_it(kernel, tmp_path):
    """A module that stays at home would be missed in the middle of a session."""
    made = build(ROOT, kernel, builds=tmp_path)
    files, cells = written(made), [text for text in sources(made) if "from pipeline" in text]
    texts = [*files.values(), *(text for text in cells if not text.startswith(("%%", "#")))]

    for text in (text for text in texts if not text.startswith("{")):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                place = node.module.replace(".", "/")
                ours = place.split("/")[0] in ("formats", "pipeline", "workbench", "deploy")
                names = {f"{place}.py", f"{place}/__init__.py"}
                assert not ours or names & files.keys(), f"{node.module} is not in the bundle"


KEY = "0123456789abcdef" * 2
ALLOWED = "# pragma: allowlist secret"


@pytest.fixture
def good(built):
    """Return a notebook and metadata that pass."""
    return json.loads(built.text), dict(built.metadata)


def check(notebook: dict, metadata: dict, offline: bool = False) -> None:
    gate.check(json.dumps(notebook), metadata, offline=offline)


def holding(root: Path, text: str) -> bundle.Bundle:
    """Build the bundle of a model that holds this text."""
    (root / "pipeline" / "model.py").write_text(f"ok = 1\n{text}\n")
    return build(root)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("docker_image", "gcr.io/x", "CPU run"),
        ("keywords", ["tpu"], "keywords"),
        ("id", "digits-train-tpu", "owner/slug"),
        ("id", "ann/" + "x" * 51, "5 to 50"),
        ("id", "ann/digits--train", "between them"),
        ("is_private", False, "is_private"),
        ("is_private", "true", "is_private"),
        ("enable_internet", None, "enable_internet"),
        ("machine_shape", "TpuV38", "TpuV5E8"),
        ("machine_shape", "TpuV99", "expected one of"),
        ("machine_shape", "NvidiaTeslaT4", "do not fit"),
        ("language", "r", "python"),
    ],
)
def test_metadata_that_kaggle_would_take_in_silence_is_refused(good, key, value, said):
    """The official client checks almost none of these; each costs a run."""
    notebook, metadata = good

    with pytest.raises(UsageError, match=said):
        check(notebook, {**metadata, key: value})


def test_inference_may_not_ask_for_the_internet(good):
    """A code competition refuses such a notebook, after it has run."""
    with pytest.raises(UsageError, match="enable_internet"):
        check(*good, offline=True)


def test_all_reasons_are_named_at_once(good):
    """One edit round instead of three; and the notebook itself pins nothing."""
    notebook, metadata = copy.deepcopy(good)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "kaggle" not in notebook["metadata"]
    notebook["cells"][1]["source"] = "x" * 900_000

    with pytest.raises(UsageError) as caught:
        check(notebook, {**metadata, "language": "r"})

    for reason in ("language is", "900,000"):
        assert reason in str(caught.value)


# Secrets; tests/deploy/client/test_secrets.py has all forms of them


@pytest.mark.parametrize(
    "leak", [f"# {{'key': '{KEY}', 'username': 'ann'}}", f"KEY = '{KEY}'\nUSERNAME = 'ann'"]
)
def test_a_planted_key_stops_the_bundle_and_is_not_repeated(root, leak):
    """A pushed notebook may be shared later, and its versions cannot be deleted."""
    with pytest.raises(UsageError, match=r"(?s)model\.py.*pragma: allowlist secret") as caught:
        holding(root, leak)

    assert KEY not in str(caught.value) and not (root / "out").exists()


def test_a_line_that_says_that_it_is_no_secret_passes_unless_its_value_is_in_use(root):
    assert KEY in holding(root, f"TOKEN = 'KGAT_{KEY}'  {ALLOWED}").text
    secrets.know(KEY)

    with pytest.raises(UsageError, match="a credential in use seems to be in cell"):
        holding(root, f"TOKEN = 'KGAT_{KEY}'  {ALLOWED}")


# Where a push can hold a token.
PLACES = {
    "a cell": lambda cell, _, token: cell.update(source=f"1\nb = '{token}'\n"),
    "a name in cell metadata": lambda cell, _, token: cell.update(metadata={token: {}}),
    "an output": lambda cell, _, token: cell.update(
        outputs=[{"output_type": "stream", "name": "stdout", "text": token}]
    ),
    "an attachment": lambda cell, _, token: cell.update(attachments={"a": {"text/plain": token}}),
    "the notebook's metadata": lambda _, notebook, token: notebook["metadata"].update(by=token),
}


def refused(notebook: dict, metadata: dict) -> str:
    """Return what the gate says of them, in which there is a secret."""
    with pytest.raises(UsageError, match=" seems to be in") as caught:
        check(notebook, metadata)
    return str(caught.value)


# A token of Kaggle's, and one that no printed line is searched for.
TOKENS = [f"KGAT_{KEY}", f"xoxb-{'12345678901-' * 2}{KEY}"]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("where", PLACES)
def test_a_secret_in_a_notebook_is_refused_and_not_repeated(good, where, token):
    """Whatever the reason for which it is quoted."""
    notebook, metadata = good
    PLACES[where](notebook["cells"][-1], notebook, token)

    assert KEY[:12] not in refused(notebook, metadata)


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("name", ["title", "machine_shape", "dataset_sources"])
def test_a_secret_in_metadata_is_refused_and_not_repeated(good, name, token):
    notebook, metadata = good
    value = [f"ann/{token}"] if name.endswith("_sources") else token

    assert KEY[:12] not in refused(notebook, {**metadata, name: value})


def test_the_line_that_names_a_cell_shows_no_part_of_a_key(good):
    """It is cut, and a key may lie across the end."""
    notebook, metadata = good
    for before in range(8, 49, 4):
        notebook["cells"][-1]["source"] = f"{'x' * before} KAGGLE_KEY={KEY}"

        assert KEY[:6] not in refused(notebook, metadata)


# What else is sent


def test_a_file_that_was_edited_after_the_gate_looked_is_not_what_is_sent(kaggle, between, built):
    """What was checked is what leaves this machine."""
    between.say("GetKernel", [(404, {"code": 404, "message": "Not found"})])
    between.say("SaveKernel", [{"versionNumber": 1, "url": "u"}])
    built.notebook.write_text(f"KAGGLE_KEY = '{KEY}'")

    kaggle.save_kernel(built.metadata, built.text, timeout_seconds=3600)

    assert between.bodies("SaveKernel")[0]["text"] == built.text
    assert KEY not in built.text
