# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Infer on the GPU, without internet
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
# ## The model of this push, or the members of an ensemble
# Found by their manifests. Run id, sha256 of each file and golden outputs are checked first.

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
# ## The least certain predictions
# Skipped in the scored rerun: nobody sees them, and a picture must not cost a submission.

# %%
from IPython.display import Image, display

from pipeline.figures import prediction_figures

if not os.environ.get("KAGGLE_IS_COMPETITION_RERUN"):
    for picture in prediction_figures.least_sure(predictions, Path.cwd()):
        display(Image(str(picture)))
    # Lists the output with its sha256, which `invoke pull` compares with its download.
    print(provenance.seal(Path.cwd()))
