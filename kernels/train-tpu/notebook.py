# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train on a TPU or two T4 GPUs
# The first cell checks the accelerator and downloads pretrained weights. If anything is missing,
# the run stops here, before it uses up quota.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # TensorFlow in Kaggle's TPU image has no TPU support
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
published.require(settings)  # fails if something is not mounted or cannot be downloaded

# %% [markdown]
# ## Show the config

# %%
from pipeline.runtime import mounts

inputs, sample = mounts.root() / "input", settings.data.sample_submission
folder = mounts.competition(inputs, settings.competition, sample, settings.training_files)
output = Path.cwd()
print(config.to_text(settings))

# %% [markdown]
# ## Show a training batch
# This cell plots a batch of images with their labels, augmented as in training. For tables, nothing
# is plotted.

# %%
from IPython.display import Image, display

from pipeline.data import dataset
from pipeline.figures import training_figures

prepared = mounts.prepared(inputs)  # pixels decoded by prepare-cpu, if it was run
examples = dataset.read_training(folder, settings, show=print, prepared=prepared)
for picture in training_figures.training_sample(examples, settings, output):
    display(Image(str(picture)))

# %% [markdown]
# ## Resume
# If training takes several sessions, each session resumes from the previous session's checkpoint.

# %%
from pipeline.train import checkpoint

checkpoint.restore(origin.expect, inputs, output)

# %% [markdown]
# ## Train
# Progress is printed as JSON lines.

# %%
from pipeline.train import training

trained = training.train(settings, folder, output, examples=examples, provenance=origin)

# %% [markdown]
# ## Plot the results

# %%
for picture in training_figures.of_training(output, settings, status=trained.status):
    display(Image(str(picture)))

# %% [markdown]
# ## Artifact
# The artifact contains the weights and a manifest, which `infer-gpu` verifies. A partial run has no
# artifact.

# %%
print(trained.status, trained.manifest and trained.manifest["metrics"])

# %% [markdown]
# ## Output
# This cell lists all files with their SHA-256, so that `invoke pull` can verify the download. The
# features for `fit="linear"` are only used in this session and can be large, so they are removed.

# %%
import shutil

from pipeline.train import frozen_features

shutil.rmtree(output / frozen_features.FOLDER, ignore_errors=True)
print(provenance.seal(output, trained.status))
