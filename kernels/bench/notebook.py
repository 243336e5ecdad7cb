# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Time trainings on a TPU, a GPU or a CPU
# The first cell checks that the accelerator is there.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # the TensorFlow of Kaggle's TPU image supports no TPU
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from pathlib import Path

from pipeline import config
from pipeline.config import rehearsal
from pipeline.runtime import devices, provenance
from workbench.benchmark import command

origin = provenance.from_bundle(Path("bundle.json"))
settings = rehearsal.shortened(config.load(origin.config), origin.session_seconds)
options = command.read(settings, origin.options)
command.use_cores(options)
print(devices.prove(origin.machine_shape) if origin.machine_shape else devices.found())
print(provenance.versions_line())

# %% [markdown]
# ## Each cell of the grid
# One line per training, the most informative first. Those of earlier sessions are not repeated, and
# none starts that would not end within the session.

# %%
command.run_on_kaggle(settings, options, Path.cwd(), print)

# %% [markdown]
# ## The output
# Each file with its sha256. Next: `invoke pull`, then `python -m workbench bench-report`.

# %%
print(provenance.seal(Path.cwd()))
