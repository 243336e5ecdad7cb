"""Runs of kernel versions, and error messages for runs that failed."""

import re
from dataclasses import dataclass, field

from deploy import auth, failures
from deploy.client import Kaggle
from deploy.errors import Denied, NotFound, NotMounted, RelayError, UsageError
from deploy.project import BENCH, INFER, KERNELS, PAIR, SHAPES, TRAIN

SAVED = "NEW_SCRIPT"  # Kaggle's status of drafts and of versions that are not queued yet
CANCELLED = "CANCEL_ACKNOWLEDGED"  # by the user in a browser, or by Kaggle after a timeout
ENDED_BADLY = ("ERROR", "CANCEL_REQUESTED", CANCELLED, SAVED)
ENDED = ("COMPLETE", "ERROR", CANCELLED, SAVED)
NOT_MOUNTED = "ERROR, a source was not mounted"  # status of a run that could not start
TAIL_LINES = 40
ERROR_LINE = re.compile(r"\s*[\w.]*(Error|Exception|Interrupt|Exit)\b\s*(:|$)")
FAILING_CELL = re.compile(r'Exception encountered at "In \[(\d+)\]"')
TIME_UP = r"exceeded [\d.]+ seconds|maximum allowed execution time"
# Advice for failed runs, keyed by a pattern for the end of their log. The first match is used. If
# the advice ends with a colon, the command that pushes the run again is appended.
CRASHES = {
    NotMounted.words: "Kaggle sometimes fails to mount a source on the first run after it is"
    " attached. You do not have to change anything. Push the notebook again:",
    r"Requested .+, but found|Unable to initialize backend 'tpu'": "Kaggle assigned a different"
    " machine. Verify the account at kaggle.com/settings, remove any docker pin, and push again.",
    r"RESOURCE_EXHAUSTED|[Oo]ut of memory|MemoryError": "The run ran out of memory. In the"
    " config, choose a smaller model, a smaller `batchnorm_batch` or a smaller image size, then"
    " push again.",
    r"exit code 137|DeadKernelError": "The session was killed because it ran out of memory or"
    " time. Make sure that session_hours is below Kaggle's limit.\nTraining resumes from its last"
    " complete checkpoint. Push it again:",
    r"No space left|Disk quota exceeded|\[Errno 28\]": "/kaggle/working is full. Keep fewer"
    " checkpoints, write temporary files to /kaggle/tmp, and push again.",
    r"[Nn]etwork is unreachable|Name or service not known|Temporary failure in name resolution"
    r"|NameResolutionError": "The notebook has no internet access. Internet access is off in"
    " infer-gpu and prepare-cpu. It is also off in all notebooks of accounts whose phone number is"
    " not verified at kaggle.com/settings. Mount the files as a dataset, or verify your phone"
    " number, then push again.",
    r"ModuleNotFoundError|ImportError": "The module is missing from Kaggle's image, or has"
    " a different version there. Use the installed packages (see constraints/), and push again.",
    TIME_UP: "The session ran out of time. In the config, reduce `epochs` or increase `batch`,"
    " then push again.",
    r"This artifact is from a different run": "Kaggle mounted an older version. Publish the"
    " artifact again, wait until it is ready, and push infer-gpu again.",
    r"No kernel name found": "The notebook has no kernelspec. Push the notebook that this command"
    " builds:\ninvoke build",
}


def crash_advice(log: str) -> str:
    """Return advice for a failed run, given the end of its log, or "" for an unknown failure.

    >>> crash_advice("OSError: [Errno 28] No space left on device").split(".")[0]
    '/kaggle/working is full'
    """
    return next((advice for shape, advice in CRASHES.items() if re.search(shape, log)), "")


@dataclass(frozen=True)
class Run:
    """An execution of a kernel version. Unknown text values are ""."""

    handle: str
    version: int
    url: str = ""
    bundle_sha256: str = ""
    machine_shape: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.handle}/{self.version}"

    @property
    def accelerator(self) -> str:
        return accelerator(self.handle, self.machine_shape)

    @property
    def push_task(self) -> str:
        """The task that pushes its kernel to the same kind of machine again.

        >>> Run("ann/digits-train-tpu", 1, machine_shape="NvidiaTeslaT4").push_task
        'push-train --for gpu-t4x2'
        """
        usual = TRAIN if self.machine_shape.startswith("Tpu") else INFER
        name = next((name for name in KERNELS if f"-{name}" in self.handle), usual)
        pair = name == TRAIN and self.machine_shape == SHAPES[PAIR]
        return f"{KERNELS[name].task}{f' --for {PAIR}' if pair else ''}"


def accelerator(kernel: str, machine_shape: str = "") -> str:
    """Return "TPU", "GPU" or "CPU", based on the machine or, if unknown, on the kernel's name.

    >>> accelerator("digits-train-tpu"), accelerator("digits-train-tpu", "NvidiaTeslaT4")
    ('TPU', 'GPU')
    """
    if machine_shape:
        return "TPU" if machine_shape.startswith("Tpu") else "GPU"
    kinds = re.findall(r"-(tpu|cpu|gpu)(?=-|$)", kernel)
    if not kinds and kernel.endswith(BENCH):  # its machine shape requests a TPU or GPU
        return "CPU"
    return kinds[-1].upper() if kinds else "GPU"


def parse(text: str) -> Run:
    """Parse a run's name such as `owner/slug/3`. Raises `UsageError` if it is invalid.

    >>> parse("ann/digits-train-tpu/3").version
    3
    """
    match = re.fullmatch(r"([A-Za-z0-9_-]{1,50}/[A-Za-z0-9-]{1,100})/v?([1-9][0-9]{0,8})", text)
    if match is None:
        raise UsageError(
            f"--run {text[:80]!r} is not a run; expected owner/slug/version, such as"
            " ann/digits-train-tpu/3. `invoke report` also accepts an existing folder.\n"
            "Correct it, or omit it to use the last run that was pushed from this project."
        )
    return Run(match[1], int(match[2]))


def page(handle: str) -> str:
    """Return the URL of a notebook's page, or "" for a local Kaggle, which has no pages."""
    return "" if auth.environment() == "LOCALHOST" else f"https://www.kaggle.com/code/{handle}"


def missing(kaggle: Kaggle, run: Run, error: Denied | NotFound) -> RelayError:
    owner, user = run.handle.partition("/")[0], kaggle.username
    if owner.lower() != user.lower():
        return type(error)(
            f"{user} has no access to {run}: you are logged in as {user}, but the run belongs to"
            f" {owner}.\nLog in as {owner}, or specify one of your own runs with --run"
            " owner/slug/version. To see who is logged in:\ninvoke doctor"
        )
    if isinstance(error, Denied):  # the run may exist
        return error
    return NotFound(
        f"Kaggle cannot find {run}: it was deleted, or its notebook was renamed on Kaggle.\n"
        f"Check https://www.kaggle.com/code/{run.handle}, and specify the run with its new name:"
        " --run owner/slug/version. To see what was pushed from this project:\ninvoke status"
    )


def failed(kaggle: Kaggle, run: Run, status: str, failure: str, then: str) -> str:
    """Return the error message for a failed run.

    It contains Kaggle's message `failure`, the failing cell, the error in that cell, the end of the
    log, and advice. It ends with the text `then`, which states what to do next.
    """
    push = f"invoke {run.push_task}"
    if status == SAVED:
        return (
            f"{run} was saved but not run. Kaggle also reports this for versions that have just"
            f" been pushed. If its page does not show a run, push it again:\n{push}"
        )
    try:
        # Redact the whole text, because secrets that span several lines are only recognized whole.
        log = failures.plain("\n".join(kaggle.kernel_log(run.handle, run.version)))
        lines = log.split("\n") if log else ["(it is empty)"]
    except RelayError as error:
        lines = [f"(the log could not be read: {str(error).splitlines()[0]})"]
    errors = [line.strip() for line in lines if ERROR_LINE.match(line)]
    cells = FAILING_CELL.findall("\n".join(lines))
    end = "\n".join([failure, *lines[-TAIL_LINES:]])
    stopped = status == CANCELLED and not re.search(TIME_UP, end)
    how = "was cancelled on kaggle.com" if stopped else f"ended as {status}"
    # The log of a cancelled run does not contain a cause.
    advice = "To run it again:" if stopped else crash_advice(end)
    parts = [
        f"{run} {how}; expected COMPLETE.",
        failures.plain(failure).strip(),
        *(f"The failing cell is In [{cell}] of {run.url or run}." for cell in cells[-1:]),
        *(f"The failing cell raised: {error}" for error in errors[-1:]),
        "The end of its log:",
        *(f"  | {line}" for line in lines[-TAIL_LINES:]),
        f"{advice}\n{push}" if advice.endswith(":") else advice or "Fix the cause and push again.",
        then,
    ]
    return "\n".join(part for part in parts if part)
