"""What usually helps against what the log of a failed run says."""

import re

from deploy.errors import NotMounted

# What the end of a failed run's log says, and what usually helps. The first that fits counts.
CRASHES = {
    NotMounted.words: "In the first run after a source was attached Kaggle may not mount it. Push"
    " the same again; nothing has to be edited.",
    r"This session has no internet": "Kaggle gave the session no internet. Verify the phone at"
    " kaggle.com/settings, and push again.",
    r"Asked for \w+|Unable to initialize backend 'tpu'": "Kaggle gave another machine. Verify the"
    " account at kaggle.com/settings, remove any docker pin, and push again.",
    r"RESOURCE_EXHAUSTED|[Oo]ut of memory|MemoryError": "Memory ran out. Use a smaller model,"
    " batchnorm_batch or image size in the config and push again.",
    r"exit code 137|DeadKernelError": "The session was killed: its memory ran out, or its time"
    " (session_hours must be less than Kaggle allows).\nTo resume from the last whole checkpoint:\n"
    "invoke push-train",
    r"No space left|Disk quota exceeded|\[Errno 28\]": "/kaggle/working is full. Keep fewer"
    " checkpoints, write scratch to /kaggle/tmp, and push again.",
    r"[Nn]etwork is unreachable|Name or service not known|Temporary failure in name resolution"
    r"|NameResolutionError": "The notebook reached for the internet and had none: it is off in"
    " infer-gpu and prepare-cpu, and anywhere for an account whose phone is not verified"
    " (kaggle.com/settings). Mount what it needs as a dataset, or verify the phone; push again.",
    r"ModuleNotFoundError|ImportError": "Kaggle's image lacks that module, or has another version."
    " Use what it has (constraints/), and push again.",
    r"exceeded [\d.]+ seconds|maximum allowed execution time": "The session's time ended. Lower"
    " epochs, or raise batch, in the config and push again.",
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
