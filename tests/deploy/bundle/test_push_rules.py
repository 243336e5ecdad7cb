"""The gate names every reason why a bundle may not be pushed, and shows no key while it does."""

import copy
import json

import pytest

from deploy.bundle import bundle, push_rules
from deploy.client import secrets
from deploy.errors import UsageError
from deploy.kernel import push_and_watch

KEY = "0123456789abcdef" * 2
ALLOWED = "# pragma: allowlist secret"


@pytest.fixture
def good(built):
    """Return a notebook and metadata that pass."""
    return json.loads(built.notebook.read_text()), dict(built.metadata)


@pytest.fixture
def build(root):
    """Return what builds the bundle of a model that holds this text."""

    def act(text: str) -> bundle.Bundle:
        (root / "pipeline" / "model.py").write_text(f"ok = 1\n{text}\n")
        named = {"config": "digits", "competition": "digits", "owner": "ann"}
        return bundle.build("train-tpu", **named, out=root / "out", root=root)

    return act


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("docker_image", "gcr.io/x", "CPU run"),
        ("keywords", ["tpu"], "keywords"),
        ("id", "digits-train-tpu", "owner/slug"),
        ("id", "ann/" + "x" * 51, "5 to 50"),
        ("title", "Another Title", "another-title"),
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
        push_rules.check(notebook, {**metadata, key: value}, size=1000, offline=False)


def test_inference_may_not_ask_for_the_internet(good):
    """A code competition refuses such a notebook, after it has run."""
    with pytest.raises(UsageError, match="enable_internet"):
        push_rules.check(*good, size=1000, offline=True)


def test_a_notebook_with_a_pin_or_without_a_kernel_or_too_large_is_refused_with_all_reasons_at_once(
    good,
):
    """One edit round instead of four."""
    notebook, metadata = copy.deepcopy(good)
    notebook["metadata"] = {"kaggle": {"accelerator": "none"}}
    del notebook["cells"][0]["source"]

    with pytest.raises(UsageError) as caught:
        push_rules.check(notebook, metadata, size=900_000, offline=False)

    for reason in ("metadata.kaggle", "kernelspec", "900,000", "not a valid notebook"):
        assert reason in str(caught.value)


# Secrets; tests/deploy/client/test_secrets.py has all forms of them


@pytest.mark.parametrize(
    "leak",
    [f"# {{'key': '{KEY}', 'username': 'ann'}}", f"KEY = '{KEY}'\nUSERNAME = 'ann'"],
)
def test_a_planted_key_stops_the_bundle_and_is_not_repeated(build, root, leak):
    """A pushed notebook may be shared later, and its versions cannot be deleted."""
    with pytest.raises(UsageError, match=r"(?s)model\.py.*pragma: allowlist secret") as caught:
        build(leak)

    assert KEY not in str(caught.value) and not (root / "out").exists()


def test_a_line_that_says_that_it_is_no_secret_passes_unless_its_value_is_in_use(build):
    assert KEY in build(f"TOKEN = 'KGAT_{KEY}'  {ALLOWED}").text
    secrets.know(KEY)

    with pytest.raises(UsageError, match="a credential in use seems to be in cell"):
        build(f"TOKEN = 'KGAT_{KEY}'  {ALLOWED}")


# Where a push can hold a token.
PLACES = {
    "lines of a cell": lambda cell, _, token: cell.update(source=["1\n", f"b = '{token}'\n"]),
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
        push_rules.check(notebook, metadata, size=1000, offline=False)
    return str(caught.value)


@pytest.mark.parametrize("where", PLACES)
def test_a_secret_in_a_notebook_is_refused_and_not_repeated(good, where):
    """Whatever the reason for which it is quoted."""
    notebook, metadata = good
    PLACES[where](notebook["cells"][-1], notebook, f"KGAT_{KEY}")

    assert KEY[:12] not in refused(notebook, metadata)


@pytest.mark.parametrize("name", ["title", "machine_shape", "dataset_sources"])
def test_a_secret_in_metadata_is_refused_and_not_repeated(good, name):
    notebook, metadata = good
    value = [f"ann/KGAT_{KEY}"] if name.endswith("_sources") else f"KGAT_{KEY}"

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

    push_and_watch.push(kaggle, built, timeout_seconds=3600)

    assert between.bodies("SaveKernel")[0]["text"] == built.text
    assert KEY not in built.text
