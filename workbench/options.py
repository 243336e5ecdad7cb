"""The options that are a text, by command: `python -m workbench` and `invoke` have the same.

`invoke --list` imports this, so it imports nothing.
"""

INSPECT = {
    "write": "name of the new config, which goes to pipeline/configs/, or path of a .py file;"
    " default: print the config",
    "page": "HTML file to write, with what was found in words and pictures",
    "competition": "the last part of its address on Kaggle; default: the folder's name, if it can"
    " be one",
    "sample": "path in the folder of the sample submission, if inspect does not find it",
    "train": "path in the folder of the table with the labels, or of the class folders, if"
    " inspect does not find it",
    "test": "path in the folder of the table of the test set, if inspect does not find it",
    "label": "the column to predict, if inspect does not find it; commas between several",
    "alone": "pictures or columns: what to read alone, where a folder has columns beside pictures"
    " or texts",
    "metric": "the competition's metric, in which the baseline is measured; with --write and a"
    " config that exists, its metric and baseline are renewed, and nothing else",
    "for": "the machine that trains: tpu-v5e-8 (default) or cpu, for which networks are timed here",
    "budget": "how long the training may take, as 2h, 8m or 90s; default: 2h, for a CPU 8m",
}
PLAN = {
    "for": "runtimes, with commas between; all shows their names, and cpu times some steps here;"
    " default: tpu-v5e-8,gpu-t4x2",
    "input": "the competition's folder: its rows are counted, and some of its images decoded",
    "images": "labelled images or rows, in place of those in --input; default: as the config says,"
    " else 50,000",
    "probe": "output folders of earlier trainings, with commas between: those of this network give"
    " its time on their runtime; invoke takes those in runs/ by default",
    "output": "the output folder of a training, which keeps the plan for its report",
    "page": "HTML file to write, with the table and a picture",
}
LARGEST = "search for the largest batch that a TPU takes: three compilations"
SWEEP = (
    "train the config's batch at five rates, from a quarter to four times its own, for a tenth of"
    " the epochs, and show the base_rate to take"
)
GRID = {
    "batch": "images per step, with commas between; default: the config's, a half and a quarter",
    "pattern": "as 1,3 or 1..8; 1: training alone, 2: with validation, 3: and augmentation; 4 to 6:"
    " the same from PNG files; 7 and 8: as 4 and 6, with 4 workers; default: all",
    "epochs": "of each training, 2 or more: the first compiles; default: 3",
}
TITLE = "title of the page; default: the config's name"
BASE = "rows per step to scale from; default: the config's base_batch"
BENCH = {
    **GRID,
    "images": "to train on at most; default: all",
    "minutes": "after which no other training begins; default: no end",
}
