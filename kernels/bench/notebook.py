# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Time training runs on a TPU, a GPU or a CPU
# The first cell checks that the accelerator is available.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # TensorFlow in Kaggle's TPU image has no TPU support
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
# ## Run the grid
# This cell prints one line per training run, starting with the most informative ones. Runs from
# earlier sessions are not repeated, and a run only starts if it can finish within this session.

# %%
command.run_on_kaggle(settings, options, Path.cwd(), print)

# %% [markdown]
# ## Output
# This cell lists all files with their SHA-256. To compare the results, run `invoke pull` and then
# `python -m workbench bench-report`.

# %%
print(provenance.seal(Path.cwd()))
