"""A run begins with another run's weights to the bit, or says which layer they do not fit."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import artifact
from pipeline.errors import ArtifactError, CheckpointError, ConfigError
from pipeline.models import architectures, backbones, weight_names
from pipeline.runtime import mounts
from pipeline.train import checkpoint, training, warm_start


def quiet(line: str) -> None:
    """Ignore a line for the user."""


def begun(config, first, fold=1, show=quiet):
    """Return a model's weights after a warm start, and their origin."""
    model = architectures.build(config)
    told = warm_start.begin(model, first, config, fold, show)
    return artifact.weights_of(model), told


def compared(first, config, held, target, show=quiet):
    """Return whether a first stage may have seen these held-out rows."""
    given = SimpleNamespace(target=target, encoding=None)
    return warm_start.compare(first, config, held, given, show)


@pytest.fixture(scope="module")
def first(trained):
    """Return the run that is trained once for many tests, as a first stage."""
    return artifact.load(trained[1] / "artifact")


def test_a_second_stage_begins_with_the_weights_of_the_first_to_the_bit(trained, tiny, tmp_path):
    """Also on eight devices, and the run that it came from is in the manifest and in each
    checkpoint, so that it resumes without the folder.
    """
    theirs = artifact.load(trained[1] / "artifact")
    folder, output, lines = tmp_path / "first", tmp_path / "out", []
    shutil.copytree(trained[1] / "artifact", folder)
    # A rate of nearly nothing: what a step adds to a weight is below its last bit.
    still = replace(tiny.optimizer, name="sgd", base_rate=1e-30, momentum=0.0)
    second = replace(tiny, optimizer=still, epochs=1, init_from=str(folder))

    training.train(second, trained[0], output, max_steps=2, show=lines.append)
    shutil.rmtree(folder)
    done = training.train(second, trained[0], output, show=quiet)

    ours = artifact.load(output / "artifact")
    assert ours.weights.keys() == theirs.weights.keys()
    trained_names = [name for name in ours.weights if "moving_" not in name]
    assert len(trained_names) < len(ours.weights)
    assert all(np.array_equal(ours.weights[name], theirs.weights[name]) for name in trained_names)
    told = done.manifest["init_from"]
    same = {name: theirs.manifest[name] for name in ("run_id", "weights_sha256")}
    rest = {"fold": None, "may_have_seen_held_out": False, "source": str(folder)}
    assert told == same | rest
    saved = checkpoint.latest(output / "checkpoints")
    assert saved is not None and saved.details["init_from"] == told
    assert any(f"Starting from run {told['run_id']}" in line for line in lines)
    assert not any("this run holds out" in line for line in lines)  # the same rows are
    with pytest.raises(CheckpointError, match=r"init_from: .*first' then, '' now"):
        training.train(replace(second, init_from=""), trained[0], output, show=quiet)
    with pytest.raises(ConfigError, match="neither a folder"):
        training.train(second, trained[0], output, fresh=True, show=quiet)


def test_layers_of_only_one_model_start_at_random_and_are_shown(first, tiny):
    """A head of another number of classes, or the layers of a deeper network; and nothing else.
    Published weights would be replaced, so they are not fetched.
    """
    lines: list[str] = []
    theirs = first.weights
    deeper = replace(tiny, model_options={**tiny.model_options, "depth": 2})

    found, _ = begun(replace(tiny, num_classes=7), first, show=lines.append)
    begun(deeper, first, show=lines.append)

    same = {name for name in found if np.array_equal(found[name], theirs.get(name))}
    assert {name for name in found if " logits/" not in name} <= same
    of_head, of_depth = lines[:3], lines[3:]
    assert f"loaded {len(found) - 2} of {len(found)} arrays" in of_head[0]
    assert of_head[1:] == ["Randomly initialized layers: logits", "Layers not loaded: logits"]
    assert len(of_depth) == 2 and "initialized layers: layer2_dense, layer2_norm" in of_depth[1]
    asked = replace(tiny, pretrained="imagenet")
    assert backbones.published(replace(asked, model="convnext_tiny", init_from="first")) is None


def test_a_layer_of_another_shape_is_refused_with_its_name(first, tiny):
    """With both shapes and the edit. The head may differ only with the number of outputs."""
    weights = dict(first.weights)
    name = next(name for name in weights if " logits/" in name and weights[name].ndim == 2)
    other = {f"0 other/{name}": array for name, array in weights.items()}
    weights[name] = np.zeros((3, 4), np.float32)
    wider = replace(tiny, num_classes=7, model_options={**tiny.model_options, "width": 24})

    for config, start, said in (
        (wider, first.weights, r"\(64, 16\) there and \(64, 24\) in this model(.|\n)*'width': 16"),
        (tiny, weights, rf"{weight_names.name(name)} has \(3, 4\) there"),
        (tiny, other, "0 of the arrays in its model mlp match"),
    ):
        with pytest.raises(ConfigError, match=f"(?s)(Invalid |is invalid).*{said}"):
            begun(config, replace(first, weights=start))


def test_the_same_fold_is_taken_and_other_folds_are_refused(first, tiny):
    """A model would be validated on rows that it was trained on."""
    weights = [{name: array + fold for name, array in first.weights.items()} for fold in (0, 1)]
    manifest = {**first.manifest, "held_out": ["a", "b"]}
    two = replace(first.config, folds=2)
    folded = replace(first, weights=artifact.joined(weights), manifest=manifest, config=two)
    ours = replace(tiny, folds=2)

    compared(folded, ours, ["a", "b"], first.target)
    found, told = begun(ours, folded, fold=2)

    assert told["fold"] == 2
    assert all(np.array_equal(found[name], weights[1][name]) for name in found)
    for config, held in ((ours, ["a", "c"]), (replace(tiny, folds=3), ["a", "b"]), (tiny, ["a"])):
        with pytest.raises(ConfigError, match="2 folds, which differ from the folds"):
            compared(folded, config, held, first.target)


def test_different_held_out_rows_and_classes_are_shown(first, tiny):
    """Each may be intended, but nobody should overlook it."""
    lines: list[str] = []
    renamed = replace(first.target, names=("a", "b", "c", "d"))

    elsewhere, same = replace(tiny, competition="elsewhere"), first.target
    for config, target in ((tiny, renamed), (elsewhere, same)):
        compared(first, config, ["other rows"], target, lines.append)

    assert len(lines) == 2 and "this run holds out" in lines[0] and "different classes" in lines[1]


def test_every_later_stage_warns_of_rows_that_an_earlier_stage_has_seen(first, tiny):
    """The second stage holds out the rows that the first one was trained on; a third, that begins
    with the second, holds out the same as it.
    """
    held, lines = first.manifest["held_out"], list[str]()
    seen = compared(first, tiny, ["others"], first.target)
    manifest = {**first.manifest, "init_from": {"may_have_seen_held_out": seen}}
    second = replace(first, manifest=manifest)

    assert seen and compared(second, tiny, held, first.target, lines.append)
    assert len(lines) == 1 and "this run holds out" in lines[0]
    assert not compared(first, tiny, held, first.target)


def test_checkpoints_of_another_run_below_the_output_are_not_its_own(trained, tiny, tmp_path):
    """Here the first stage lies in the output of the second."""
    (tmp_path / "first" / "checkpoints" / "step-00000001").mkdir(parents=True)
    config = replace(tiny, init_from=str(trained[1]))

    assert warm_start.find(config, [tmp_path], fresh=False) is not None
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    assert warm_start.find(config, [tmp_path], fresh=False) is None


def test_a_dataset_is_found_where_it_is_mounted(trained, tiny, tmp_path, monkeypatch, flipped):
    """In either layout, with or without a version; changed bytes are refused."""
    monkeypatch.setattr(mounts, "root", lambda: tmp_path)
    source = replace(tiny, init_from="ann/first-stage/3")
    with pytest.raises(ConfigError, match=r"init_from='ann/first-stage/3'.*nor a mounted dataset"):
        warm_start.find(source, [tmp_path / "out"], fresh=False)
    place = tmp_path / "input" / "datasets" / "ann" / "first-stage"
    shutil.copytree(trained[1] / "artifact", place)

    found = warm_start.find(source, [tmp_path / "out"], fresh=False)

    assert found is not None
    assert found.manifest == artifact.load(trained[1] / "artifact").manifest
    flipped(place / "weights.npz", 999)
    with pytest.raises(ArtifactError, match="does not match manifest"):
        warm_start.find(source, [tmp_path / "out"], fresh=False)


def test_with_folds_it_is_needed_until_each_fold_has_a_checkpoint(trained, tiny, tmp_path):
    """A fold that starts in a later session starts from the same weights."""
    folded = replace(tiny, folds=2, init_from=str(trained[1] / "artifact"))
    places = [tmp_path / "fold-1", tmp_path / "fold-2"]
    for place, needed in zip(places, (True, False), strict=True):
        (place / "checkpoints" / "step-00000001").mkdir(parents=True)

        assert (warm_start.find(folded, places, fresh=False) is not None) == needed
    assert warm_start.find(folded, places, fresh=True) is not None


def test_a_fold_that_starts_later_does_not_start_from_other_weights(trained, tiny, tmp_path):
    """A dataset without a version can have a new one in the next session."""
    earlier = shutil.copytree(trained[1] / "artifact", tmp_path / "earlier")
    folded = replace(tiny, folds=2, epochs=1, init_from=str(earlier))
    training.train(folded, trained[0], tmp_path / "out", max_steps=2, show=quiet)
    shutil.rmtree(earlier)
    training.train(replace(tiny, epochs=1), trained[0], tmp_path / "other", show=quiet)
    shutil.copytree(tmp_path / "other/artifact", earlier)

    with pytest.raises(CheckpointError, match=r"(?s)expected run .*start over with --fresh"):
        training.train(folded, trained[0], tmp_path / "out", show=quiet)
