"""What usually helps against what the log of a failed run says, and what pushes it again."""

import re

from deploy.errors import NotMounted
from deploy.project import INFER, PAIR, PUSHED_BY, SHAPES, TRAIN

TIME_UP = r"exceeded [\d.]+ seconds|maximum allowed execution time"
# What the end of a failed run's log says, and what usually helps. The first that fits counts. A
# colon at its end is followed by the command that pushes the run again.
CRASHES = {
    NotMounted.words: "In the first run after a source was attached Kaggle may not mount it."
    " Nothing has to be edited. Push the same again:",
    r"Asked for \w+|Unable to initialize backend 'tpu'": "Kaggle gave another machine. Verify the"
    " account at kaggle.com/settings, remove any docker pin, and push again.",
    r"RESOURCE_EXHAUSTED|[Oo]ut of memory|MemoryError": "Memory ran out. Use a smaller model,"
    " batchnorm_batch or image size in the config and push again.",
    r"exit code 137|DeadKernelError": "The session was killed: its memory ran out, or its time"
    " (session_hours must be less than Kaggle allows).\nA training resumes from its last whole"
    " checkpoint. Push it again:",
    r"No space left|Disk quota exceeded|\[Errno 28\]": "/kaggle/working is full. Keep fewer"
    " checkpoints, write scratch to /kaggle/tmp, and push again.",
    r"[Nn]etwork is unreachable|Name or service not known|Temporary failure in name resolution"
    r"|NameResolutionError": "The notebook reached for the internet and had none: it is off in"
    " infer-gpu and prepare-cpu, and anywhere for an account whose phone is not verified"
    " (kaggle.com/settings). Mount what it needs as a dataset, or verify the phone; push again.",
    r"ModuleNotFoundError|ImportError": "Kaggle's image lacks that module, or has another version."
    " Use what it has (constraints/), and push again.",
    TIME_UP: "The session's time ended. Lower epochs, or raise batch, in the config and push"
    " again.",
    r"this is the artifact of another run": "Kaggle mounted an older version. Publish the artifact"
    " again, wait for it, and push infer again.",
    r"No kernel name found": "The notebook has no kernelspec. Push the one that this makes:\n"
    "invoke build",
}


def crash_advice(log: str) -> str:
    """Return what usually helps against what the end of a log says; "" if nothing is known.

    >>> crash_advice("OSError: [Errno 28] No space left on device").split(".")[0]
    '/kaggle/working is full'
    """
    return next((advice for shape, advice in CRASHES.items() if re.search(shape, log)), "")


def task(handle: str, machine_shape: str) -> str:
    """Return the task that pushes a kernel again, to the machine that it was on.

    >>> task("ann/digits-train-tpu", "NvidiaTeslaT4")
    'push-train --for gpu-t4x2'
    >>> task("ann/renamed-on-the-site", "TpuV5E8")
    'push-train'
    """
    usual = TRAIN if machine_shape.startswith("Tpu") else INFER
    found = next((name for name in PUSHED_BY if f"-{name}" in handle), usual)
    where = f" --for {PAIR}" if found == TRAIN and machine_shape == SHAPES[PAIR] else ""
    return f"{PUSHED_BY[found]}{where}"
