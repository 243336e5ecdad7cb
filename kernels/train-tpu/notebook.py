# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train on the TPU, or on two T4
# The first cell checks the accelerator and fetches pretrained weights. If something is missing, the
# run stops here, before it costs quota.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # the TensorFlow of Kaggle's TPU image supports no TPU
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from pathlib import Path

from pipeline import config
from pipeline.config import rehearsal
from pipeline.models import published
from pipeline.runtime import devices, provenance

origin = provenance.from_bundle(Path("bundle.json"))
print(devices.prove(origin.machine_shape))
print(provenance.versions_line())
settings = rehearsal.shortened(config.load(origin.config), origin.session_seconds)
published.require(settings)  # fails if the internet is off, or if something is not mounted

# %% [markdown]
# ## The configuration, as applied

# %%
from pipeline.runtime import mounts

inputs, data = mounts.root() / "input", settings.data
folder = mounts.competition(
    inputs, settings.competition, data.sample_submission, data.files("train")
)
output = Path.cwd()
print(config.to_text(settings))

# %% [markdown]
# ## What the model sees
# A batch of training images with their labels, augmented as in training. Tables have no picture.

# %%
from IPython.display import Image, display

from pipeline.data import dataset
from pipeline.figures import training_figures

prepared = mounts.prepared(inputs)  # the pixels that prepare-cpu decoded, if it ran
examples = dataset.read_training(folder, settings, show=print, prepared=prepared)
for picture in training_figures.training_sample(examples, settings, output):
    display(Image(str(picture)))

# %% [markdown]
# ## Resume
# A run that takes several sessions resumes from the checkpoint of the session before.

# %%
from pipeline.train import checkpoint

checkpoint.restore(origin.expect, inputs, output)

# %% [markdown]
# ## Training
# Each line of progress is JSON.

# %%
from pipeline.train import training

trained = training.train(settings, folder, output, examples=examples, provenance=origin)

# %% [markdown]
# ## Curves, confusion, time

# %%
for picture in training_figures.of_training(output, settings, status=trained.status):
    display(Image(str(picture)))

# %% [markdown]
# ## The artifact
# Weights and a manifest; `infer-gpu` checks each byte before it predicts. A partial run has none.

# %%
print(trained.status, trained.manifest and trained.manifest["metrics"])

# %% [markdown]
# ## The output
# Each file with its sha256. `invoke pull` compares its download with this list. The features of
# `fit="linear"` may take gigabytes and serve only this session, so they are removed.

# %%
import shutil

from pipeline.train import frozen_features

shutil.rmtree(output / frozen_features.FOLDER, ignore_errors=True)
print(provenance.seal(output, trained.status))
