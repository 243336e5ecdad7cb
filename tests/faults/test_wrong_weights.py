"""What once gave plausible scores of wrong weights: parts of two artifacts, and another run's."""

import json
import os
import shutil
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.kernel import artifact_manifest, output
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from pipeline import artifact
from pipeline.errors import ArtifactError
from pipeline.runtime import mounts
from tests.faults.child import stopped
from tests.faults.recorded_session import write_artifact
from tests.faults.world import DATASET, another_run_s_version, settle, temporary


@pytest.mark.parametrize("examples", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_publish_after_a_killed_one_holds_no_byte_of_it(examples):
    """K29: the files have the sizes and the times of those before them."""
    with temporary("publish") as world:
        ours = Pushes(world.project).last_artifact()
        bundle = json.loads((ours / "manifest.json").read_text())["bundle_sha256"]

        def write(sizes, stamp):
            names = ["weights.npz", "one.npz", "two.npz", "three.npz"][: len(sizes)]
            contents = map(os.urandom, sizes)
            write_artifact(
                ours, bundle, dict(zip(names, contents, strict=True)), os.urandom(6).hex()
            )
            for path in ours.iterdir():
                os.utime(path, (stamp, stamp))

        @settings(max_examples=examples)
        @given(
            sizes=st.lists(st.integers(1, 50_000), min_size=2, max_size=4),
            stamp=st.integers(10**9, 2 * 10**9),
            call=st.sampled_from(["StartBlobUpload", "upload"]),
            place=st.integers(1, 2),
            after=st.booleans(),
        )
        def publish_twice(sizes, stamp, call, place, after):
            write(sizes, stamp)
            sent = signal.SIGKILL
            code, said = stopped(world, "publish", call, sent, after=after, place=place)
            assert code == -signal.SIGKILL, said
            write(sizes, stamp)
            settle(world, "publish")

        publish_twice()


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize(
    "place",
    [f"datasets/{DATASET}", "digits-artifact", f"notebooks/{DATASET}/{output.ARTIFACT}"],
)
def test_the_weights_of_another_run_are_refused_wherever_they_are_mounted(place, renamed):
    """K23, on Kaggle: also where somebody gave them the name of the run."""
    with temporary("push-infer") as world:
        ours = Pushes(world.project).last_artifact()
        built = relay.build(world.project, relay.INFER, "rehearsal", artifact=ours)
        cells = json.loads(built.notebook.read_text(encoding="utf-8"))["cells"]
        bundle = next(cell["source"] for cell in cells if "%%writefile bundle" in cell["source"])
        expect = json.loads(bundle.partition("\n")[2])["expect"]
        another_run_s_version(world)
        inputs = world.folder / "input"
        shutil.copytree(world.local.datasets.mounted(DATASET), inputs / place)
        manifest = json.loads((inputs / place / "manifest.json").read_text())
        manifest = {**dict.fromkeys(artifact.KEYS, ""), **manifest}
        if renamed:
            manifest["run_id"] = expect["run_id"]
        (inputs / place / "manifest.json").write_bytes(artifact_manifest.sealed(manifest))

        with pytest.raises(ArtifactError, match="version of the dataset is mounted"):
            artifact.load(mounts.artifact(inputs, expect["run_id"]), expect)
