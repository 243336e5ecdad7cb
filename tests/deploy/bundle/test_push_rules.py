"""The gate names every reason why a bundle may not be pushed, and shows no key while it does."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bundle import bundle, push_rules
from deploy.errors import UsageError

KEY = "0123456789abcdef" * 2


@pytest.fixture
def good(built):
    """Return a notebook and metadata that pass."""
    return json.loads(built.notebook.read_text()), dict(built.metadata)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("docker_image", "gcr.io/x", "CPU run"),
        ("keywords", ["tpu"], "keywords"),
        ("id", "digits-train-tpu", "owner/slug"),
        ("id", "ann/x", "5 to 50"),
        ("id", "ann/" + "x" * 51, "5 to 50"),
        ("title", "Another Title", "another-title"),
        ("is_private", False, "is_private"),
        ("is_private", "true", "is_private"),
        ("enable_internet", None, "enable_internet"),
        ("machine_shape", "TpuV38", "TpuV5E8"),
        ("machine_shape", "NvidiaTeslaP100", "NvidiaTeslaT4"),
        ("machine_shape", "TpuV99", "expected one of"),
        ("machine_shape", "NvidiaTeslaT4", "do not fit"),
        ("kernel_type", "script", "notebook"),
    ],
)
def test_metadata_that_kaggle_would_take_in_silence_is_refused(good, key, value, said):
    """The official client checks almost none of these; each costs a run."""
    notebook, metadata = good

    with pytest.raises(UsageError, match=said):
        push_rules.check(notebook, {**metadata, key: value}, size=1000, offline=False)


def test_inference_may_not_ask_for_the_internet(good):
    """A code competition refuses such a notebook, after it has run."""
    notebook, metadata = good

    with pytest.raises(UsageError, match="enable_internet"):
        push_rules.check(notebook, metadata, size=1000, offline=True)


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


@pytest.mark.parametrize(
    "leak",
    [
        'token = "KGAT_0123456789abcdef0123"',
        f'{{"username":"ann","key":"{KEY}"}}',
        f"key: {KEY}\nusername: ann",
        f'os.environ["KAGGLE_KEY"] = "{KEY}"',
        "curl -H 'Authorization: Basic YW5uOjAxMjM0NTY3ODlhYmNkZWY='",
        "headers = {'Authorization': 'Bearer eyJhbGciOiJub25lIn0.e30'}",
    ],
)
def test_a_planted_key_stops_the_bundle_and_is_not_repeated(root, leak):
    """A pushed notebook may be shared later, and its versions cannot be deleted."""
    (root / "pipeline" / "model.py").write_text(
        f"ok = 1\n# {leak.splitlines()[0]}\n" + "\n".join(leak.splitlines()[1:])
    )

    with pytest.raises(UsageError, match=r"model\.py") as caught:
        bundle.build(
            "train-tpu",
            config="digits",
            competition="digits",
            owner="ann",
            out=root / "out",
            root=root,
        )

    message = str(caught.value)
    assert not [part for part in (KEY, "KGAT_", "eyJ", "YW5u") if part in message]
    assert not (root / "out").exists()


def test_a_build_says_how_near_to_the_limit_it_is():
    """Who adds a module sees it before the gate refuses."""
    assert push_rules.share_of_limit(436_319) == "436 kB, 48 % of the 900 kB that the gate allows"
    assert push_rules.share_of_limit(899_999).startswith("900 kB, 100 % of")


@pytest.mark.parametrize(
    "innocent",
    [
        "Bearer authentication is not used here",
        'f"Bearer {token}"',
        f'sha256 = "{KEY}{KEY}"',
        f'keys = ["{KEY}"]',
    ],
)
def test_prose_and_hashes_are_no_keys(good, innocent):
    """A gate that cries wolf gets switched off."""
    notebook, metadata = good
    notebook["cells"][-1]["source"] = innocent

    push_rules.check(notebook, metadata, size=1000, offline=False)

    assert list(push_rules.secrets(notebook, metadata)) == []


@given(
    st.text(alphabet="0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=8),
    st.text(),
    st.text(),
)
def test_a_token_is_found_wherever_it_stands(token, before, after):
    """Property: whatever surrounds it."""
    notebook = {"cells": [{"source": f"{before}KGAT_{token}{after}"}]}

    assert list(push_rules.secrets(notebook, {}))
