"""Help texts for options that `python -m workbench` and `invoke` have in common.

`invoke --list` imports this module, so it must not import anything.
"""

INSPECT = {
    "write": "name of a new config in pipeline/configs/, or path of a .py file (default: print the"
    " config)",
    "page": "HTML file to write, with the findings as text and images",
    "competition": "last part of the competition's URL (default: the folder's name, if it is"
    " valid)",
    "sample": "path of the sample submission in the folder, if inspect does not find it",
    "train": "path in the folder to the table with labels, or to the class folders, if inspect does"
    " not find it",
    "test": "path of the test table in the folder, if inspect does not find it",
    "label": "column to predict, if inspect does not find it; separate several columns with commas",
    "alone": "use only pictures or only columns, if a folder has columns in addition to pictures or"
    " texts",
    "metric": "metric of the competition and the baseline; if --write names an existing config,"
    " only its metric and baseline are updated",
    "for": "machine to train on: tpu-v5e-8, or cpu to time networks on this machine (default:"
    " tpu-v5e-8)",
    "budget": "maximum training time, such as 2h, 8m or 90s (default: 2h, or 8m on a CPU)",
}
PLAN = {
    "for": "runtimes, separated by commas; all means every runtime except cpu, which times a few"
    " steps on this machine (default: tpu-v5e-8,gpu-t4x2)",
    "input": "competition folder, to count its rows and decode some of its images",
    "images": "number of labelled images or rows, overriding --input (default: the number in the"
    " config, or 50,000)",
    "probe": "output folders of earlier runs, separated by commas; the step time is estimated from"
    " runs of the same network on the same runtime (default with invoke: runs/)",
    "output": "output folder of a training run, to save the plan for its report",
    "page": "HTML file to write, with the table and a plot",
}
LARGEST = "search for the largest batch that fits on a TPU (requires three compilations)"
SWEEP = (
    "train for a tenth of the epochs with five learning rates, from a quarter to four times the"
    " config's learning rate, and print the best base_rate"
)
GRID = {
    "batch": "batch sizes, separated by commas (default: the config's batch size, half of it and a"
    " quarter of it)",
    "pattern": "such as 1,3 or 1..8. 1: training only, 2: with validation, 3: with validation and"
    " augmentation; 4 to 6: like 1 to 3, from PNG files; 7 and 8: like 4 and 6, with 4 workers"
    " (default: all)",
    "epochs": "epochs per training run, at least 2, because the first one compiles (default: 3)",
}
TITLE = "title of the page (default: the config's name)"
BASE = "batch size to scale from (default: the config's base_batch)"
BENCH = {
    **GRID,
    "images": "maximum number of training images (default: all)",
    "minutes": "time after which no new run starts (default: no limit)",
}
