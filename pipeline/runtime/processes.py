"""Train one model with several processes, each with its own devices (`jax.distributed`).

Each process computes its part of every batch. The first process writes to the output folder, and
the others write to temporary folders. Decisions that depend on a clock or a signal are made
together, because if one process stopped alone, the others would wait for it forever. All processes
must start with the same config, data and output folder.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import ConfigError, PipelineError, reading

SILENCE = 20  # seconds without a heartbeat before JAX terminates the other processes
PATIENCE = 180  # seconds to wait for the other processes at the start
AGREED_EVERY = 2.0  # approximate seconds between agreements
MOST_CALLS = 10_000
DIRECT = "no_grpc_proxy"  # hosts to which JAX's gRPC connects without a proxy
ENDED = (
    "Another process of this training run has stopped, so this process stops as well.\n"
    "Check that process's output. To resume from the last checkpoint, run the same commands again."
)
# Variables that JAX uses to find the other processes (SLURM, Kubernetes jobs, GKE's TPU slices),
# with their value for a single process.
CLUSTERS = {"SLURM_NTASKS": "1", "JOB_COMPLETION_INDEX": "", "TPU_WORKER_HOSTNAMES": "localhost"}
ALONE = (
    "The processes could not connect: {why}\n"
    "Start as many processes as --processes specifies, each with its own --process-id. All must use"
    " the same --coordinator, whose port must be free and reachable. To train with a single"
    f" process, omit these options and unset {', '.join(CLUSTERS)} (env -u NAME python -m"
    " pipeline train …)."
)
# Parts of JAX's error messages when the connection to another process is lost.
BROKEN = ("Gloo", "Connection", "UNAVAILABLE", "coordination")

_handlers: list[object] = []  # C callbacks, which must not be garbage collected
_joined: list[bool] = []
_parted: list[bool] = []  # not empty once no process waits for another


def join(count: int | None, place: int | None, coordinator: str) -> None:
    """Connect to the other processes, if any. Call this function before JAX computes anything.

    Args:
        count: number of processes; None for a single process or all processes of a cluster that JAX
            detects.
        place: index of this process, starting at 0.
        coordinator: host and port on which the first process listens.
    """
    if count is None and place is None and not coordinator:
        if any(os.environ.get(name, one) not in ("", one) for name, one in CLUSTERS.items()):
            _initialize()
        return
    address = re.fullmatch(r"([\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5})", coordinator)
    valid = count is not None and place is not None and 0 <= place < count
    if not valid or not address or not 0 < int(address[2]) < 2**16:
        raise ConfigError(
            f"Invalid --processes {count} --process-id {place} --coordinator"
            f" {coordinator or None}. Set all three options. --process-id must be from 0 to"
            " processes - 1, and --coordinator must have the form HOST:PORT.\n"
            "Start each process like this: --processes 2 --process-id 0 --coordinator 10.0.0.2:1234"
        )
    if place == 0:  # JAX would crash
        _refuse_port_in_use(int(address[2]))
    # The machines are connected directly and not through the internet proxy.
    direct = (os.environ.get(DIRECT), os.environ.get("no_proxy"), address[1])
    os.environ[DIRECT] = ",".join(filter(None, direct))
    _initialize(
        coordinator_address=coordinator,
        num_processes=count,
        process_id=place,
        # Otherwise, JAX would use SLURM's local task number as the device.
        cluster_detection_method="deactivate",
    )


def _refuse_port_in_use(port: int) -> None:
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        why = f"port {port} of --coordinator is in use ({error.strerror})"
        raise PipelineError(ALONE.format(why=why)) from error


def _initialize(**options: Any) -> None:
    import jax

    late = ALONE.format(why=f"timed out after {PATIENCE} seconds")

    def end(_signal: int) -> None:
        os.write(2, f"\nError: {ENDED if _joined else late}\n".encode())
        os._exit(1)

    # JAX terminates a process with SIGABRT from its own thread, in which Python handles no signals.
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(end)
    _handlers.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)
    options |= {"heartbeat_timeout_seconds": SILENCE, "initialization_timeout": PATIENCE}
    print(f"Waiting up to {PATIENCE} seconds for the other processes", file=sys.stderr, flush=True)
    # Python does not handle Ctrl-C while JAX is waiting. JAX would also replace the SIGTERM
    # handler.
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        jax.distributed.initialize(**options)
    except (ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise PipelineError(ALONE.format(why=why)) from error
    finally:
        for name, earlier in before.items():
            signal.signal(name, earlier)
    _joined.append(True)


def count() -> int:
    import jax

    return int(jax.process_count())


def first() -> bool:
    """Return whether this process writes the outputs and shows messages."""
    import jax

    return jax.process_index() == 0


def _gather(values: np.ndarray) -> np.ndarray:
    """Wait for all processes and return each process's values, (processes, len(values))."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(values)).reshape(-1, len(values))


def shared(text: str) -> str:
    """Wait for all processes, and return the text of the first process. All texts must have the
    same length.
    """
    if count() == 1:
        return text
    texts = _gather(np.frombuffer(text.encode(), np.uint8))
    return bytes(texts[0].tolist()).decode()


def refuse_differences(what: str, values: Mapping[str, Any], edit: str) -> None:
    """Raise `ConfigError` if the values differ between processes.

    Args:
        what: description of the values for the message.
        values: JSON values, keyed by name. All processes must use the same names.
        edit: how to fix a difference.
    """
    if count() == 1:
        return
    texts = {name: json.dumps(value, sort_keys=True) for name, value in sorted(values.items())}
    sums = _gather(np.array([zlib.crc32(text.encode()) for text in texts.values()], np.uint32))
    differs = (sums != sums[0]).any(axis=0)
    if names := [name for name, one in zip(texts, differs, strict=True) if one]:
        here = "; ".join(f"this process has {name} {texts[name][:200]}" for name in names)
        raise ConfigError(
            f"The processes differ in {', '.join(names)} of {what}. The values must be the same"
            f" ({here}).\n{edit}"
        )


def part() -> None:
    """Wait until all processes have finished and no longer depend on each other."""
    if count() > 1 and not _parted:
        shared("the end")
        _parted.append(True)


@contextmanager
def folder(output: Path) -> Iterator[Path]:
    """Yield this process's output folder. The first process uses `output`, and the others resume
    from a temporary copy of it.
    """
    if count() == 1:
        yield output
        return
    import jax

    with tempfile.TemporaryDirectory(prefix="relay-process-") as temporary:
        here = output if first() else Path(temporary) / "output"
        try:
            seen = sorted(path.as_posix() for path in output.glob("**/checkpoints/step-*"))
            edit = "Start all processes with the same --output on a file system that they share."
            refuse_differences("the run", {"--output": [str(output), *seen]}, edit)
            if not first() and output.is_dir():
                with reading(
                    output, ConfigError, "Set --output to a folder that all processes can read."
                ):
                    skipped = ("decoded", "artifact", "compiled", "checkpoints-set-aside-*")
                    shutil.copytree(output, here, ignore=shutil.ignore_patterns(*skipped))
            shared("copied")
            yield here
            part()
        except Exception as error:
            # Errors in custom code are reported with their file, and with JAX's error as the cause.
            for each in (error, error.__cause__):
                broken = isinstance(each, jax.errors.JaxRuntimeError)
                if broken and any(text in str(each) for text in BROKEN):
                    raise PipelineError(f"{ENDED}\n({each!s:.200})") from error
            raise


def leave(code: int) -> None:
    """Exit after an error if this process has joined others, because JAX would wait for them."""
    if _joined and code and not _parted:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Agreement:
    """Lets all processes agree to stop after the same call."""

    def __init__(self) -> None:
        # Calls since the last agreement, and until the next one.
        self._reason, self._calls, self._next = "", 0, 1
        self._since = time.monotonic()

    def on(self, reason: str | None) -> str | None:
        """Return the reason why all processes must stop now, or None. After each call to the
        devices, every process must call this with its own reason to stop, if it has one.
        """
        if count() == 1:
            return reason
        self._calls += 1
        self._reason = reason or self._reason
        if self._calls < self._next:
            return None
        seconds = (time.monotonic() - self._since) / self._calls
        calls = int(min(max(AGREED_EVERY / max(seconds, 1e-9), 1), MOST_CALLS))
        stops, calls_of_all = _gather(np.array([bool(self._reason), calls], np.int32)).T
        self._calls, self._next, self._since = 0, int(calls_of_all.min()), time.monotonic()
        if not stops.any():
            return None
        return self._reason or "another process was asked to stop"
