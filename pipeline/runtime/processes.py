"""Processes that train one model together, each with devices of its own (`jax.distributed`).

Each runs the same program, and computes its part of every batch. Each writes into a folder of its
own; that of the first is the output, those of the others are removed. What depends on a clock or on
a signal is agreed on: a process that stopped alone would leave the others waiting for its part.
"""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pipeline.errors import ConfigError, PipelineError, reading

# Seconds after which a process that is not heard of counts as ended. JAX then ends all others.
SILENCE = 20
PATIENCE = 180  # seconds, until the others have to be there
AGREED_EVERY = 2.0  # seconds, about
MOST_CALLS = 10_000
DIRECT = "no_grpc_proxy"  # hosts that gRPC, by which JAX's processes talk, asks without a proxy
ENDED = (
    "Another process of this training has ended, so this one ends, too.\n"
    "See what that one said. The same commands go on from the last checkpoint."
)
ALONE = (
    "The processes did not find each other: {why}\n"
    "Start as many as --processes says, each with its own --process-id and one --coordinator, whose"
    " port is free and can be reached."
)
# Where JAX finds the other processes by itself: SLURM, Kubernetes jobs, GKE's TPU slices.
KNOWN = {"SLURM_NTASKS": "1", "JOB_COMPLETION_INDEX": "", "TPU_WORKER_HOSTNAMES": "localhost"}

# What JAX says where a connection to another process broke.
BROKEN = ("Gloo", "Connection", "UNAVAILABLE", "coordination")

_handlers: list[object] = []  # of C: they have to live as long as the process
_own: list[str] = []  # the folder of a process that is not the first
_joined: list[bool] = []


def join(count: int | None, place: int | None, coordinator: str) -> None:
    """Join the other processes, if there are any. Call it before JAX computes.

    Args:
        count: of processes; None: one, or as many as a cluster says that JAX knows.
        place: of this one, from 0 on.
        coordinator: host and port at which the first one listens.

    Raises:
        ConfigError: if only some of the three are given, or they cannot be.
        PipelineError: if the processes do not find each other.
    """
    given = (count is not None, place is not None, bool(coordinator))
    if not any(given):
        if any(os.environ.get(name, alone) not in ("", alone) for name, alone in KNOWN.items()):
            _initialize()
        return
    whole = all(given) and count is not None and place is not None
    if not whole or count is None or place is None or not 0 <= place < count:
        raise ConfigError(
            f"--processes {count} --process-id {place} --coordinator {coordinator or None} cannot"
            " work: expected all three, and an id from 0 to one less than the processes.\n"
            "Start each as: --processes 2 --process-id 0 --coordinator HOST:PORT"
        )
    # Machines that train together reach each other without the proxy for the internet.
    direct = [os.environ.get(name, "") for name in (DIRECT, "no_proxy")]
    host = coordinator.rpartition(":")[0]
    os.environ[DIRECT] = ",".join(filter(None, [*direct, host]))
    _initialize(coordinator_address=coordinator, num_processes=count, process_id=place)


def _initialize(**given: object) -> None:
    import jax

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(_end)
    _handlers.append(handler)
    # JAX ends a process with SIGABRT from a thread of its own, where Python handles no signal.
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)
    limits = {"heartbeat_timeout_seconds": SILENCE, "initialization_timeout": PATIENCE}
    try:
        jax.distributed.initialize(**given, **limits)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise PipelineError(ALONE.format(why=why)) from error
    _joined.append(True)


def _end(_signal: int) -> None:
    why = ENDED if _joined else ALONE.format(why=f"not within {PATIENCE} seconds")
    os.write(2, f"\nError: {why}\n".encode())
    _clean()
    os._exit(1)


def _clean() -> None:
    for path in _own:
        shutil.rmtree(path, ignore_errors=True)


def count() -> int:
    """Return how many processes train together."""
    import jax

    return int(jax.process_count())


def first() -> bool:
    """Return whether this is the process that writes and speaks."""
    import jax

    return jax.process_index() == 0


@contextmanager
def folder(output: Path) -> Iterator[Path]:
    """Give each process a folder of its own: the first one `output`, the others a copy of what a
    run resumes from, which is removed.

    Raises:
        ConfigError: if the others see other checkpoints there.
        PipelineError: if another process ended meanwhile.
    """
    if count() == 1:
        yield output
        return
    import jax
    from jax.experimental import multihost_utils

    with tempfile.TemporaryDirectory(prefix="relay-process-") as own:
        _own.append(own)
        here = output if first() else Path(own) / "output"
        if not first() and output.is_dir():
            with reading(output, ConfigError, "Give --output a folder that all processes read."):
                ignored = shutil.ignore_patterns("decoded", "artifact", "compiled")
                shutil.copytree(output, here, ignore=ignored)
        seen = sorted(path.relative_to(here).as_posix() for path in here.rglob("step-*"))
        digest = np.uint32(zlib.crc32(repr(seen).encode()))
        try:
            if len(set(multihost_utils.process_allgather(digest).tolist())) > 1:
                raise ConfigError(
                    f"The processes see different checkpoints in {output}; expected one folder for"
                    " all.\nPut --output on a file system that they share."
                )
            yield here
            multihost_utils.sync_global_devices("the training has ended")
        except Exception as error:
            # An error in an own model is told as one of its file, with what JAX said as its cause.
            for told in (error, error.__cause__):
                broken = isinstance(told, jax.errors.JaxRuntimeError)
                if broken and any(word in str(told) for word in BROKEN):
                    why = str(told).splitlines()[0][:200]
                    raise PipelineError(f"{ENDED}\n({why})") from error
            raise


def leave(code: int) -> None:
    """End a process that others wait for, after an error: JAX would wait for them."""
    if _joined and code:
        sys.stdout.flush()
        sys.stderr.flush()
        _clean()
        os._exit(code)


class Agreement:
    """Lets all processes stop after the same call."""

    def __init__(self) -> None:
        self._calls, self._next, self._reason = 0, 1, ""
        self._since, self._asked = time.monotonic(), 0

    def on(self, reason: str | None) -> str | None:
        """Return why all stop now, or None. To be called after each call to the devices.

        Args:
            reason: why this process would stop, if it would.
        """
        if count() == 1:
            return reason
        self._calls += 1
        self._reason = reason or self._reason
        if self._calls < self._next:
            return None
        from jax.experimental import multihost_utils

        took = (time.monotonic() - self._since) / (self._calls - self._asked)
        wanted = int(min(max(AGREED_EVERY / max(took, 1e-9), 1), MOST_CALLS))
        mine = np.array([bool(self._reason), wanted], np.int32)
        every = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1, 2)
        self._since, self._asked = time.monotonic(), self._calls
        self._next = self._calls + int(every[:, 1].min())
        if not every[:, 0].any():
            return None
        return self._reason or "another process was asked to stop"


def shared(text: str) -> str:
    """Return the first process's text; those of all have one length."""
    if count() == 1:
        return text
    from jax.experimental import multihost_utils

    mine = np.frombuffer(text.encode(), np.uint8)
    return (
        np.asarray(multihost_utils.broadcast_one_to_all(mine)).astype(np.uint8).tobytes().decode()
    )
