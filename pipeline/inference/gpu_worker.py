"""GPU worker: the process of one GPU, started by `pipeline.inference.multi_gpu` as `python -m
pipeline.inference.gpu_worker JOB`.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault(
    "TF_CPP_MIN_LOG_LEVEL", "2"
)  # its start-up messages would hide the last line, which the parent shows

from pipeline.errors import PipelineError
from pipeline.inference import inference


def main(job: Path) -> int:
    """Compute the rows of one job and return the exit code."""
    try:
        inference.share(job)
    except PipelineError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
