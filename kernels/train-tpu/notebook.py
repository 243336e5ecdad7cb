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

from pipeline import devices

print(devices.prove("TpuV5E8"))

# %% [markdown]
# ## The configuration, as applied

# %%
from pathlib import Path

from pipeline import config, mounts, provenance

origin = provenance.from_bundle(Path("bundle.json"))
settings = config.load(origin.config)
folder = mounts.competition(mounts.root() / "input", settings.competition, settings.data.sample_submission)
output = Path.cwd()
print(config.to_text(settings))

# %% [markdown]
# ## What the model sees
# A batch of training images, cropped and mirrored as in training, with their labels.

# %%
from IPython.display import Image, display

from pipeline import figures, training

images = training.read(settings, folder)
for picture in figures.training_sample(images, settings, output):
    display(Image(str(picture)))

# %% [markdown]
# ## Training
# One line of JSON an interval.

# %%
trained = training.train(settings, folder, output, images=images, provenance=origin)

# %% [markdown]
# ## Curves, confusion, and where time went

# %%
for picture in figures.of_training(output):
    display(Image(str(picture)))

# %% [markdown]
# ## The artifact
# Weights and a manifest; `infer-gpu` checks every byte of it before it predicts.

# %%
import json

print(
    json.dumps(
        {key: trained.manifest[key] for key in ("run_id", "weights_sha256", "metrics", "versions", "seconds")}, indent=2
    )
)

# %% [markdown]
# ## What was written
# Each file with its sha256; `invoke pull` compares what it gets with this list.

# %%
print(provenance.seal(output))
