"""GPU worker: the process of one GPU, which `pipeline.infer.multi_gpu` starts as `python -m
pipeline.infer.gpu_worker JOB`.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

# The parent shows the last line of the log, which start-up messages would hide.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from formats.errors import KnownError
from pipeline.data.test_set import read_test
from pipeline.infer import block_prediction, multi_gpu, restoring


def main(job: Path) -> int:
    """Compute the rows of one job and return the exit code."""
    try:
        artifact, settings, rows, values = multi_gpu.read_job(job)
        forward, checked = restoring.restore(artifact, settings.precision)
        (job / multi_gpu.CHECKED).write_text(json.dumps(asdict(checked)))
        test = read_test(Path(settings.folder), artifact.config, artifact.encoding)
        limit, batch, first = settings.limit, settings.batch, rows.start
        with multi_gpu.reporting(job) as report:
            block_prediction.fill(
                artifact,
                test,
                forward,
                values,
                first=first,
                limit=limit,
                batch=batch,
                report=report,
            )
    except KnownError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
