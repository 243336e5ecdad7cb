"""GPU worker: the process of one GPU, which `pipeline.inference.multi_gpu` starts as `python -m
pipeline.inference.gpu_worker JOB`.
"""

import os
import sys
from pathlib import Path

# The parent shows the last line of the log, which start-up messages would hide.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from pipeline.errors import PipelineError
from pipeline.inference import inference


def main(job: Path) -> int:
    """Compute the rows of one job and return the exit code."""
    try:
        inference.compute_job(job)
    except PipelineError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
