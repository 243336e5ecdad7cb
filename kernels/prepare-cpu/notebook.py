# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Prepare on the CPU
# Decodes the training images once, without an accelerator. A training that mounts this output reads
# the pixels in place of the files.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # as in train-tpu, since the config may define a model
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from pathlib import Path

from pipeline import config
from pipeline.config import rehearsal
from pipeline.data import preparation
from pipeline.runtime import mounts, provenance

origin = provenance.from_bundle(Path("bundle.json"))
settings = rehearsal.shortened(config.load(origin.config), origin.session_seconds)
inputs = mounts.root() / "input"
data = settings.data
folder = mounts.competition(
    inputs, settings.competition, data.sample_submission, data.files("train")
)

# %% [markdown]
# ## Decode
# Each line of progress is JSON; a step is a shard. Shards of an earlier session are copied.

# %%
status = preparation.prepare(settings, folder, Path.cwd(), earlier=mounts.prepared(inputs))

# %% [markdown]
# ## The output
# Each file with its sha256.

# %%
print(provenance.seal(Path.cwd(), status))
