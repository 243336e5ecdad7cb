"""Artifacts and bundles contain arrays, texts and JSON, but no pickles or serialized models."""

import ast
import io
import json
import pickle
import pickletools
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import project
from deploy import bundle
from localkaggle import competitions
from pipeline.train import training
from tests.shipped import shipped

SERIALIZERS = {"pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve", "skops"}
KERNELS = ("train-tpu", "infer-gpu")


def problem(name: str, content: bytes) -> str:
    """Return why a file could hold a serialized model, or "" if it cannot."""
    try:
        if [*pickletools.genops(content)][-1][0].name == "STOP":
            return "a pickle"
    except ValueError:
        pass
    kind, stream = Path(name).suffix, io.BytesIO(content)
    if kind in (".json", ".csv"):
        text = content.decode()
        return "" if kind == ".csv" or json.loads(text) else "empty"
    if kind == ".npy":
        try:
            np.lib.format.read_array(stream, allow_pickle=False)
        except ValueError as error:
            return str(error)
        return "bytes after the array" if stream.read() else ""
    if kind != ".npz":
        return f"a file of the type {kind}"
    with zipfile.ZipFile(stream) as archive:
        found = [problem(each, archive.read(each)) for each in archive.namelist()]
    return next(filter(None, found), "")


def imports(text: str) -> set[str]:
    """Return the packages that a module imports, and the attributes that it reads."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def test_two_refits_give_the_same_bytes_and_no_serialized_model(tmp_path):
    """The trees of boosting are arrays."""
    config = shipped("breast_cancer")
    fields = {"model": "columns", "model_options": {}, "fit": "boosting", "folds": 2}
    config = replace(config, keep="last", patience=None, **fields)
    competitions.EMBEDDED[config.competition]().write(tmp_path / "table")
    for name in ("one", "two"):
        training.train(config, tmp_path / "table", tmp_path / name, show=str)

    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "artifact").iterdir()}
        for name in ("one", "two")
    )

    assert set(one) == {"manifest.json", "weights.npz", "golden.npz"}
    assert all(one[name] == two[name] for name in ("weights.npz", "golden.npz"))
    assert {name: problem(name, content) for name, content in one.items()} == dict.fromkeys(one, "")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_bundle_contains_only_modules_that_import_no_serializer(kernel):
    ours = project.load("breast_cancer")
    modules = bundle.read(ours, kernel).modules
    assert {Path(name).suffix for name in modules} == {".py"}
    used = {name: imports(text) & {*SERIALIZERS, "load_model"} for name, text in modules.items()}
    assert {name: found for name, found in used.items() if found} == {}


def array(value: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"protocol-{each}.json", pickle.dumps({"a": 1.5}, each)) for each in range(6)),
        ("objects.npy", array(np.array([{}], object))),
        ("after.npy", array(np.zeros(3)) + pickle.dumps([1])),
        ("model.joblib", b"anything"),
    ],
)
def test_a_serialized_model_would_be_found(name, content):
    """Alone, or in an archive of arrays."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("good.npy", array(np.zeros(3)))
        archive.writestr(name, content)

    assert problem(name, content) and problem("weights.npz", stream.getvalue())
    assert imports("import joblib") & SERIALIZERS
