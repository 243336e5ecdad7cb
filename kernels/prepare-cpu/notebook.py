# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Prepare the training images on a CPU
# This notebook decodes the training images once, without using accelerator quota. Training runs
# that mount its output read the decoded pixels instead of the image files.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # as in train-tpu, because the config may define a model
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
# Progress is printed as JSON lines, with one step per shard. Shards from earlier sessions are
# copied.

# %%
status = preparation.prepare(settings, folder, Path.cwd(), earlier=mounts.prepared(inputs))

# %% [markdown]
# ## Output
# This cell lists all files with their SHA-256.

# %%
print(provenance.seal(Path.cwd(), status))
