"""Options with a value, by command, which `python -m workbench` and `invoke` share.

`invoke --list` imports this module, so it imports nothing.
"""

INSPECT = {
    "write": "name of the new config, which goes to pipeline/configs/, or path of a .py file;"
    " default: print the config",
    "page": "HTML file to write, with the findings in words and pictures",
    "competition": "the last part of its address on Kaggle; default: the folder's name, if it can"
    " be one",
    "sample": "path of the sample submission in the folder, if inspect does not find it",
    "train": "path in the folder of the table with the labels, or of the class folders, if"
    " inspect does not find it",
    "test": "path in the folder of the table of the test set, if inspect does not find it",
    "label": "the column to predict, if inspect does not find it; separate several with commas",
    "alone": "pictures or columns: which of them to read, if a folder has columns beside pictures"
    " or texts",
    "metric": "the competition's metric, also of the baseline; with --write and an existing config,"
    " renews only its metric and baseline",
    "for": "the machine that trains: tpu-v5e-8 (default), or cpu, which times networks here",
    "budget": "how long the training may take, such as 2h, 8m or 90s; default: 2h, for a CPU 8m",
}
PLAN = {
    "for": "runtimes, separated by commas; all shows their names, and cpu times some steps here;"
    " default: tpu-v5e-8,gpu-t4x2",
    "input": "the competition's folder, to count its rows and decode some of its images",
    "images": "number of labelled images or rows, instead of those in --input; default: the"
    " config's, else 50,000",
    "probe": "output folders of earlier trainings, separated by commas: runs of the same network"
    " give its time on their runtime; invoke uses those in runs/ by default",
    "output": "the output folder of a training, which keeps the plan for its report",
    "page": "HTML file to write, with the table and a picture",
}
LARGEST = "search for the largest batch that fits on a TPU: three compilations"
SWEEP = (
    "train the config's batch at five rates, from a quarter to four times its own, for a tenth of"
    " the epochs, and show the base_rate to use"
)
GRID = {
    "batch": "images per step, separated by commas; default: the config's, a half and a quarter",
    "pattern": "such as 1,3 or 1..8; 1: training only, 2: with validation, 3: and augmentation;"
    " 4 to 6: the same from PNG files; 7 and 8: as 4 and 6, with 4 workers; default: all",
    "epochs": "of each training, 2 or more, because the first compiles; default: 3",
}
TITLE = "title of the page; default: the config's name"
BASE = "rows per step to scale from; default: the config's base_batch"
BENCH = {
    **GRID,
    "images": "most images to train on; default: all",
    "minutes": "after which no further training starts; default: no limit",
}
