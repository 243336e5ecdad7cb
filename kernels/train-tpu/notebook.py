# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train on the TPU
# The first cell proves that there is one; without it the run stops here, before it costs quota.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # Kaggle's TPU image has a TensorFlow that knows no TPU
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from pipeline.runtime import devices

print(devices.prove("TpuV5E8"))

# %% [markdown]
# ## The configuration, as applied

# %%
from pathlib import Path

from pipeline import config
from pipeline.runtime import mounts, provenance

origin = provenance.from_bundle(Path("bundle.json"))
settings = config.load(origin.config)
folder = mounts.competition(
    mounts.root() / "input", settings.competition, settings.data.sample_submission
)
output = Path.cwd()
print(config.to_text(settings))

# %% [markdown]
# ## What the model sees
# A batch of training images, cropped and mirrored as in training, with their labels; of a table there is nothing to draw.

# %%
from IPython.display import Image, display

from pipeline.figures import training_figures
from pipeline.training import training

examples = training.read(settings, folder)
for picture in training_figures.training_sample(examples, settings, output):
    display(Image(str(picture)))

# %% [markdown]
# ## Where it goes on
# A run that is longer than a session goes on from what the session before it left.

# %%
from pipeline.session import resume

resume.take(origin.expect, mounts.root() / "input", output)

# %% [markdown]
# ## Training
# One line of JSON an interval.

# %%
trained = training.train(settings, folder, output, examples=examples, provenance=origin)

# %% [markdown]
# ## Curves, confusion, and where time went

# %%
for picture in training_figures.of_training(output, status=trained.status):
    display(Image(str(picture)))

# %% [markdown]
# ## The artifact
# Weights and a manifest; `infer-gpu` checks every byte of it before it predicts. A run that is partial has none yet.

# %%
print(resume.summary(trained.status, trained.manifest, output))

# %% [markdown]
# ## What was written
# Each file with its sha256; `invoke pull` compares what it gets with this list.

# %%
print(provenance.seal(output, trained.status))
