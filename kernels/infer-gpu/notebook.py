# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Infer on the GPU, internet off
# The first cell checks that there is a GPU.

# %%
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from pipeline.runtime import devices, provenance

devices.share_memory()
print(devices.prove("NvidiaTeslaT4", least=1))
print(provenance.versions_line())

# %% [markdown]
# ## The model that this notebook was pushed for, or the members of an ensemble
# Their manifests find them. Run id, sha256 of every file and golden outputs are checked first.

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
# ## Predictions
# In the scored rerun this cell predicts the hidden test set.

# %%
predictions = inference.infer(models, folder, Path.cwd(), weights=weights, config=settings)

# %% [markdown]
# ## What it was least sure of
# Skipped in the scored rerun: nobody sees it, and a picture must not cost a submission.

# %%
from IPython.display import Image, display

from pipeline.figures import prediction_figures

if not os.environ.get("KAGGLE_IS_COMPETITION_RERUN"):
    for picture in prediction_figures.least_sure(predictions, Path.cwd()):
        display(Image(str(picture)))
    # A list of what was written, which `invoke pull` compares with what it downloads.
    print(provenance.seal(Path.cwd()))
