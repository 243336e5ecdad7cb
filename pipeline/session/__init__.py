"""What lets a run stop at any moment and resume: checkpoints, the time limit, the progress log.

Comes in: the state of a run and the clock. Goes out: checkpoints, and when to stop. Never imported
here: data, models or training.
"""
