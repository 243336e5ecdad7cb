"""Images that CPU sessions decoded, one of them killed, and the trainings that take them."""

import json
import re
import threading

import pytest

from deploy.errors import RunFailed
from deploy.project import PREPARE, TRAIN, Project
from deploy.relay import relay
from pipeline import config as configs
from tests.e2e.project import ROOT, opened, quiet

IMAGES = 1197
# Large enough for several shards, and a model that takes no time.
CONFIG = """
from keras import layers

from pipeline.config import Config, Data, Optimizer


def averages(images, num_classes, batchnorm_momentum):
    x = layers.AveragePooling2D(64, name="pool")(images)
    x = layers.Flatten(name="flat")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


CONFIG = Config(
    name="enlarged", competition="digits", num_classes=10, model="averages", batch=64, epochs=1,
    data=Data(height=512, width=512, channels=3, resize="stretch"), warmup_epochs=0,
    optimizer=Optimizer(name="adam", base_rate=1e-2, base_batch=64),
)
"""
DECODED = re.compile(r"Prepared [\d,]+ images: ([\d,]+) decoded here")
FOUND = re.compile(r"Found ([\d,]+) of [\d,]+ images decoded in")
CHANGED = re.compile(r"([\d,]+) files have changed since they were decoded")


def number(words, version):
    """Return the number that a version's log says; 0 if it does not."""
    found = words.search(version.log.text())
    return int(found[1].replace(",", "")) if found else 0


def weights(version):
    return json.loads((version.working / "artifact" / "manifest.json").read_text())[
        "weights_sha256"
    ]


def shards(version):
    return sorted(version.working.glob("*-of-*.json"))


def kill_after_a_shard(version):
    while not version.done.wait(0.01):
        if shards(version):
            version.session.kill()
            return


@pytest.mark.slow
def test_what_was_prepared_is_taken_resumed_and_never_stale(tmp_path):
    """Whole shards of a killed session are not decoded again; a changed file is; and the weights
    are those of trainings that decode all themselves.
    """
    config = tmp_path / "enlarged.py"
    config.write_text(CONFIG)
    decoding = configs.load(str(config)).data.decoding

    def chain(folder, *, prepared):
        folder.mkdir()
        places = (folder / "runs", folder / "build")
        ours = Project(ROOT, str(config), "digits", "dataset", *places, deadline_seconds=1800,
                       decoding=decoding)  # fmt: skip
        with opened(folder / "kaggle") as (local, kaggle):

            def push(kernel, *, killed=False, again=False):
                run = relay.push(kaggle, ours, kernel, again=again, show=quiet)
                version = local.kernels.version(run.handle, run.version)
                if not killed:
                    relay.watch(kaggle, ours, run, show=quiet)
                    return version
                threading.Thread(target=kill_after_a_shard, args=(version,), daemon=True).start()
                with pytest.raises(RunFailed):
                    relay.watch(kaggle, ours, run, show=quiet)
                return version

            def change():
                """Write another image over the first, as a host may."""
                first, second, *_ = sorted(
                    (local.competitions.folder("digits") / "train").iterdir()
                )
                first.write_bytes(second.read_bytes())

            if not prepared:
                before = weights(push(TRAIN))
                change()
                return before, weights(push(TRAIN, again=True))
            kept = shards(push(PREPARE, killed=True))
            resumed = push(PREPARE)
            left = IMAGES - sum(len(json.loads(path.read_text())["origins"]) for path in kept)
            assert 0 < number(DECODED, resumed) == left < IMAGES
            taken = push(TRAIN)
            assert number(FOUND, taken) == IMAGES
            change()
            stale = push(TRAIN, again=True)
            assert number(CHANGED, stale) == number(DECODED, push(PREPARE, again=True)) == 1
            fresh = push(TRAIN, again=True)
            assert (number(CHANGED, fresh), number(FOUND, fresh)) == (0, IMAGES)
            assert weights(fresh) == weights(stale)
            return weights(taken), weights(fresh)

    plain = chain(tmp_path / "without", prepared=False)

    assert plain[0] != plain[1]
    assert chain(tmp_path / "with", prepared=True) == plain
