# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Run inference on a GPU without internet access
# The first cell checks that a GPU is available.

# %%
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from pipeline.runtime import devices, provenance

devices.share_memory()
print(devices.prove("NvidiaTeslaT4", least=1))
print(provenance.versions_line())

# %% [markdown]
# ## Load the model or the ensemble's members
# Models are found by their manifests. Before they are used, their run id, files and golden outputs
# are verified.

# %%
from pathlib import Path

from pipeline import config
from pipeline.config import rehearsal
from pipeline.infer import ensemble, inference
from pipeline.runtime import mounts

origin = provenance.from_bundle(Path("bundle.json"))
settings = rehearsal.shortened(config.load(origin.config), origin.session_seconds)
inputs = mounts.root() / "input"
models, weights = ensemble.mounted(inputs, origin.expect)
data = settings.data
folder = mounts.competition(
    inputs, settings.competition, data.sample_submission, data.files("test")
)

# %% [markdown]
# ## Predict
# In the scored rerun, this cell predicts the hidden test set.

# %%
predictions = inference.infer(
    models,
    folder,
    Path.cwd(),
    weights=weights,
    thresholds=origin.expect.get("thresholds"),
    config=settings,
)

# %% [markdown]
# ## Show the least certain predictions
# This cell does nothing in the scored rerun, where nobody sees the plots and an error would cost a
# submission.

# %%
from IPython.display import Image, display

from pipeline.figures import prediction_figures

if not os.environ.get("KAGGLE_IS_COMPETITION_RERUN"):
    for picture in prediction_figures.least_sure(predictions, Path.cwd()):
        display(Image(str(picture)))
    # `invoke pull` compares the files that it downloads with this list.
    print(provenance.seal(Path.cwd()))
