"""A run knows its commit and its bundle, or says that it does not."""

import hashlib
import json
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.runtime import provenance

TOLD = {
    "config": "digits",
    "competition": "digits",
    "git_commit": "0" * 40,
    "git_dirty": False,
    "bundle_sha256": "1" * 64,
    "expect": {"run_id": "r"},
    "kernel": "infer-gpu",
}


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", "{", "{}", "[" * 100_000, json.dumps({**TOLD, "expect": None})[:-3]],
    ids=range(7),
)
def test_a_notebook_without_its_bundle_is_refused(tmp_path: Path, text):
    """Usage: it was not pushed by us."""
    if text is not None:
        (tmp_path / "bundle.json").write_text(text)

    with pytest.raises(ConfigError, match=r"bundle\.json") as caught:
        provenance.from_bundle(tmp_path / "bundle.json")

    assert "invoke build" in str(caught.value)


def test_a_run_writes_down_what_it_leaves(tmp_path: Path):
    """Every file but the notebook, which is still being written, and the list itself, also when it
    is written again.
    """
    (tmp_path / "artifact").mkdir()
    (tmp_path / "artifact" / "weights.npz").write_bytes(b"weights")
    (tmp_path / "__notebook__.ipynb").write_text("{}")

    told = [json.loads(provenance.seal(tmp_path).read_text())["files"] for _ in range(2)]

    digest = hashlib.sha256(b"weights").hexdigest()
    assert told[0] == told[1] == {"artifact/weights.npz": {"sha256": digest, "size": 7}}
