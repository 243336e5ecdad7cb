"""A teacher and its student, from the first training to the score of the second."""

import json

import pandas as pd
import pytest

from localkaggle.server import LocalKaggle
from tests.e2e.project import by_jax, copied, runner

CONFIG = """from dataclasses import replace

from pipeline.config import PseudoLabels
from pipeline.configs.digits import CONFIG as digits

CONFIG = replace(
    digits, name="{name}", folds=2, epochs=10, warmup_epochs=1, batch=64, batchnorm_batch=None,
    {more}
)
"""
STUDENT = 'pseudo_labels=PseudoLabels(teacher="{teacher}", confidence=0.8)'


@pytest.mark.slow
def test_a_student_mounts_its_teacher_and_both_are_in_the_manifest(tmp_path):
    project = by_jax(copied(tmp_path))
    configs = project / "pipeline/configs"
    (configs / "teacher.py").write_text(CONFIG.format(name="teacher", more=""))
    with LocalKaggle(tmp_path / "kaggle", competitions=["digits"], offline=True) as local:
        run, ran = runner(project, local)
        output, _ = ran("push-train", ("--config", "teacher"))
        published = run("invoke", "publish", "--config", "teacher")
        teacher = f"{published['dataset']}/{published['dataset_version']}"
        more = STUDENT.format(teacher=teacher)
        (configs / "student.py").write_text(CONFIG.format(name="student", more=more))
        given = ("--config", "student")
        learned, _ = ran("push-train", given)
        run("invoke", "publish", *given)
        _, which = ran("push-infer", given)
        scored = run("invoke", "submit", *which, "--yes")

    first, second = (
        json.loads((folder / "artifact/manifest.json").read_text()) for folder in (output, learned)
    )
    said = second["pseudo_labels"]
    assert (said["teacher"], said["run_id"]) == (teacher, first["run_id"])
    assert 0 < min(said["used"]) <= said["of"] == 100  # the public test set
    one, other = (pd.read_csv(folder / "validation.csv") for folder in (output, learned))
    assert one[["id", "fold"]].equals(other[["id", "fold"]])
    assert scored["score"] > 0.9
