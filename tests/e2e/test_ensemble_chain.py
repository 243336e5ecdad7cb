"""An ensemble of two members, from the training to the score."""

import json

import pytest

from localkaggle.server import LocalKaggle
from tests.e2e.project import by_jax, copied, runner

# The second one has larger images and a custom loss.
MEMBER = """from dataclasses import replace

import keras

from pipeline.configs.digits import CONFIG as digits


def focal(labels, outputs):
    losses = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
    return (1 - keras.ops.exp(-losses)) ** 2 * losses


CONFIG = replace(
    digits, name="{name}", folds=2, epochs=10, warmup_epochs=1, batch=64, batchnorm_batch=None,
    thresholds=True, {more}
)
"""
MEMBERS = {
    "member_1": "seed=1",
    "member_own": 'loss="focal", data=replace(digits.data, height=12, width=12, resize="stretch")',
}


@pytest.mark.slow
def test_an_ensemble_is_published_scored_and_traced_by_its_members(tmp_path):
    project = by_jax(copied(tmp_path))
    for name, more in MEMBERS.items():
        path = project / "pipeline/configs" / f"{name}.py"
        path.write_text(MEMBER.format(name=name, more=more))
    with LocalKaggle(tmp_path / "kaggle", competitions=["digits"], offline=True) as local:
        run, ran = runner(project, local)
        outputs = [ran("push-train", ("--config", name))[0] for name in MEMBERS]
        mean, again = (tmp_path / place for place in ("mean", "again"))
        for place in (mean, again):
            found = run("pipeline", "ensemble", *outputs, "--output", place)
        config, path = ("--config", "member_1"), mean / "ensemble.json"
        datasets = run("invoke", "publish", *config, "--ensemble", path)["datasets"]
        inferred, which = ran("push-infer", config, "--ensemble", path)
        scored = run("invoke", "submit", *which, "--yes")
        links = run("invoke", "status", *config, "--of", scored["submission"])["links"]

    members = [each["run_id"] for each in found["members"]]
    assert path.read_bytes() == (again / "ensemble.json").read_bytes()
    assert found["score"] >= max(each["alone"] for each in found["members"])  # it begins with it
    assert len(datasets) == len(set(members)) == 2
    lineage = [link["value"].split(",")[0] for link in links if link["what"] == "artifact"]
    assert sorted(lineage) == sorted(members)
    assert scored["score"] >= 0.9
    used = json.loads((inferred / "members.json").read_bytes())
    assert all(each["thresholds"] == found["thresholds"] for each in used)
