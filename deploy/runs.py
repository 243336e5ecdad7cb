"""A run: one execution of a kernel version, and why it failed."""

import re
from dataclasses import dataclass, field

from deploy import auth, failures
from deploy.client import Kaggle
from deploy.errors import Denied, NotFound, NotMounted, RelayError, UsageError
from deploy.project import BENCH, INFER, KERNELS, PAIR, SHAPES, TRAIN

SAVED = "NEW_SCRIPT"  # Kaggle's status of a draft, or of a version that is not queued yet
CANCELLED = "CANCEL_ACKNOWLEDGED"  # in a browser, or by Kaggle after its time
ENDED_BADLY = ("ERROR", "CANCEL_REQUESTED", CANCELLED, SAVED)
ENDED = ("COMPLETE", "ERROR", CANCELLED, SAVED)
NOT_MOUNTED = "ERROR, a source was not mounted"  # the status of a run that never started
TAIL_LINES = 40
ERROR_LINE = re.compile(r"\s*[\w.]*(Error|Exception|Interrupt|Exit)\b\s*(:|$)")
FAILING_CELL = re.compile(r'Exception encountered at "In \[(\d+)\]"')
TIME_UP = r"exceeded [\d.]+ seconds|maximum allowed execution time"
# Patterns of the end of a failed run's log, and what usually helps. The first match counts. After a
# colon at the end comes the command that pushes the run again.
CRASHES = {
    NotMounted.words: "Kaggle may not mount a source in the first run after it was attached."
    " Nothing has to be edited. Push the same again:",
    r"Asked for \w+|Unable to initialize backend 'tpu'": "Kaggle gave a different machine. Verify"
    " the account at kaggle.com/settings, remove any docker pin, and push again.",
    r"RESOURCE_EXHAUSTED|[Oo]ut of memory|MemoryError": "Memory ran out. Use a smaller model,"
    " batchnorm_batch or image size in the config and push again.",
    r"exit code 137|DeadKernelError": "The session was killed: its memory ran out, or its time"
    " (session_hours must be less than Kaggle allows).\nA training resumes from its last whole"
    " checkpoint. Push it again:",
    r"No space left|Disk quota exceeded|\[Errno 28\]": "/kaggle/working is full. Keep fewer"
    " checkpoints, write scratch to /kaggle/tmp, and push again.",
    r"[Nn]etwork is unreachable|Name or service not known|Temporary failure in name resolution"
    r"|NameResolutionError": "The notebook has no internet: it is off in infer-gpu and prepare-cpu,"
    " and everywhere for an account whose phone is not verified (kaggle.com/settings). Mount what"
    " it needs as a dataset, or verify the phone; push again.",
    r"ModuleNotFoundError|ImportError": "Kaggle's image lacks that module, or has another version"
    " of it. Use what it has (constraints/), and push again.",
    TIME_UP: "The session's time ended. Lower epochs, or raise batch, in the config and push"
    " again.",
    r"this is the artifact of another run": "Kaggle mounted an older version. Publish the artifact"
    " again, wait for it, and push infer-gpu again.",
    r"No kernel name found": "The notebook has no kernelspec. Push the one from this command:\n"
    "invoke build",
}


def crash_advice(log: str) -> str:
    """Return what usually helps after such an end of a log; "" if that is unknown.

    >>> crash_advice("OSError: [Errno 28] No space left on device").split(".")[0]
    '/kaggle/working is full'
    """
    return next((advice for shape, advice in CRASHES.items() if re.search(shape, log)), "")


@dataclass(frozen=True)
class Run:
    """One execution of a kernel version.

    Attributes:
        handle: owner/slug of the kernel.
        version: of the kernel.
        url: of its page; "" if there is none, or it is unknown.
        bundle_sha256: "" if we did not push it.
        machine_shape: Kaggle's name of the machine that it asked for; "" if unknown.
    """

    handle: str
    version: int
    url: str = ""
    bundle_sha256: str = ""
    machine_shape: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.handle}/{self.version}"

    @property
    def accelerator(self) -> str:
        """ "TPU", "GPU" or "CPU"."""
        return accelerator(self.handle, self.machine_shape)

    @property
    def push_task(self) -> str:
        """The task that pushes its kernel again, to the same kind of machine.

        >>> Run("ann/digits-train-tpu", 1, machine_shape="NvidiaTeslaT4").push_task
        'push-train --for gpu-t4x2'
        """
        usual = TRAIN if self.machine_shape.startswith("Tpu") else INFER
        name = next((name for name in KERNELS if f"-{name}" in self.handle), usual)
        pair = name == TRAIN and self.machine_shape == SHAPES[PAIR]
        return f"{KERNELS[name].task}{f' --for {PAIR}' if pair else ''}"


def accelerator(kernel: str, machine_shape: str = "") -> str:
    """Return "TPU", "GPU" or "CPU", by the machine, or else by the end of the kernel's name.

    >>> accelerator("digits-train-tpu"), accelerator("digits-train-tpu", "NvidiaTeslaT4")
    ('TPU', 'GPU')
    """
    if machine_shape:
        return "TPU" if machine_shape.startswith("Tpu") else "GPU"
    kinds = re.findall(r"-(tpu|cpu|gpu)(?=-|$)", kernel)
    if not kinds and kernel.endswith(BENCH):  # it asks for a TPU or GPU by its shape
        return "CPU"
    return kinds[-1].upper() if kinds else "GPU"


def parse(text: str) -> Run:
    """Return the run with the name `owner/slug/3`. Raises `UsageError` for any other text.

    >>> parse("ann/digits-train-tpu/3").version
    3
    """
    match = re.fullmatch(r"([A-Za-z0-9_-]{1,50}/[A-Za-z0-9-]{1,100})/v?([1-9][0-9]{0,8})", text)
    if match is None:
        raise UsageError(
            f"--run {text[:80]!r} is not a run; expected owner/slug/version, such as"
            " ann/digits-train-tpu/3, or for `invoke report` an existing folder.\n"
            "Correct it, or leave it out for the last run that was pushed from here."
        )
    return Run(match[1], int(match[2]))


def page(handle: str) -> str:
    """Return the address of a notebook's page; "" for a local Kaggle, which has no pages."""
    return "" if auth.environment() == "LOCALHOST" else f"https://www.kaggle.com/code/{handle}"


def missing(kaggle: Kaggle, run: Run, error: Denied | NotFound) -> RelayError:
    """Return the error for a run that Kaggle does not find, or does not show to this account."""
    owner, user = run.handle.partition("/")[0], kaggle.username
    if owner.lower() != user.lower():
        return type(error)(
            f"There is no run {run} that {user} may see: you are logged in as {user}, and the run"
            f" is {owner}'s.\nLog in as {owner}, or name one of your own runs: --run"
            " owner/slug/version. To see who is logged in:\ninvoke doctor"
        )
    if isinstance(error, Denied):  # it may be there
        return error
    return NotFound(
        f"Kaggle does not find {run}: it was deleted, or its notebook was renamed on Kaggle.\n"
        f"Look at https://www.kaggle.com/code/{run.handle}, and name it by its new address: --run"
        " owner/slug/version. To see what was pushed from here:\ninvoke status"
    )


def failed(kaggle: Kaggle, run: Run, status: str, failure: str, then: str) -> str:
    """Return the message about a failed run: its cell, its error, the end of its log, and what
    usually helps.

    Args:
        failure: Kaggle's message.
        then: the last lines: what to do next.
    """
    push = f"invoke {run.push_task}"
    if status == SAVED:
        return (
            f"{run} was saved and not run; expected a run. Kaggle also reports that about a version"
            f" that was just pushed. If its page shows no run, push it again:\n{push}"
        )
    try:
        # As one text, since a secret of several lines is recognized only whole.
        log = failures.plain("\n".join(kaggle.kernel_log(run.handle, run.version)))
        lines = log.split("\n") if log else ["(it is empty)"]
    except RelayError as error:
        lines = [f"(the log could not be read: {str(error).splitlines()[0]})"]
    errors = [line.strip() for line in lines if ERROR_LINE.match(line)]
    cells = FAILING_CELL.findall("\n".join(lines))
    end = "\n".join([failure, *lines[-TAIL_LINES:]])
    stopped = status == CANCELLED and not re.search(TIME_UP, end)
    how = "was cancelled on kaggle.com" if stopped else f"ended as {status}"
    # The log of a run that was cancelled has no cause.
    advice = "To run it again:" if stopped else crash_advice(end)
    parts = [
        f"{run} {how}; expected COMPLETE.",
        failures.plain(failure).strip(),
        *(f"The failing cell is In [{cell}] of {run.url or run}." for cell in cells[-1:]),
        *(f"The failing cell said: {error}" for error in errors[-1:]),
        "The end of its log:",
        *(f"  | {line}" for line in lines[-TAIL_LINES:]),
        f"{advice}\n{push}" if advice.endswith(":") else advice or "Fix the cause and push again.",
        then,
    ]
    return "\n".join(part for part in parts if part)
