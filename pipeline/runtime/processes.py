"""Processes that train one model together, each with devices of its own (`jax.distributed`).

Each runs the same program, and computes its part of every batch. Each writes into a folder of its
own; that of the first is the output, those of the others are removed. What depends on a clock or on
a signal is agreed on: a process that stopped alone would leave the others waiting for its part.
They begin alike, or not at all: with one config, the same data, and one output folder.
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
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from formats.errors import writing
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
    " port is free and can be reached.{alone}"
)
CLUSTER = " To train alone in spite of {names}: env -u {unset} python -m pipeline train …"
MARK = "processes.txt"  # in the output folder, until all have seen it
# Where JAX finds the other processes by itself: SLURM, Kubernetes jobs, GKE's TPU slices.
KNOWN = {"SLURM_NTASKS": "1", "JOB_COMPLETION_INDEX": "", "TPU_WORKER_HOSTNAMES": "localhost"}

# What JAX says where a connection to another process broke.
BROKEN = ("Gloo", "Connection", "UNAVAILABLE", "coordination")

_handlers: list[object] = []  # of C: they have to live as long as the process
_own: list[str] = []  # the folder of a process that is not the first
_joined: list[bool] = []
_parted: list[bool] = []  # whether all have met at the end: none waits for another any more


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
        names = [name for name, one in KNOWN.items() if os.environ.get(name, one) not in ("", one)]
        if names:
            said = ", ".join(f"{name}={os.environ[name]}" for name in names)
            alone = CLUSTER.format(names=said, unset=" -u ".join(names))
            _initialize(f"the other processes of {said}", alone)
        return
    address = re.fullmatch(r"([\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5})", coordinator)
    port = int(address[2]) if address else 0
    if count is None or place is None or not 0 <= place < count or not 0 < port < 2**16:
        words = {"--processes": count, "--process-id": place, "--coordinator": coordinator or None}
        received = " ".join(f"{name} {one}" for name, one in words.items() if one is not None)
        raise ConfigError(
            f"{received} cannot work: expected all of {', '.join(words)}, an id from 0 to one less"
            " than the processes, and HOST:PORT.\n"
            "Start each as: --processes 2 --process-id 0 --coordinator 10.0.0.2:1234"
        )
    assert address is not None  # noqa: S101 - else there is no port
    if place == 0:
        _refuse_taken(port)
    # Machines that train together reach each other without the proxy for the internet.
    direct = [os.environ.get(name, "") for name in (DIRECT, "no_proxy")]
    os.environ[DIRECT] = ",".join(filter(None, [*direct, address[1]]))
    # Else JAX would take SLURM's number of a task on its machine for that of the device to use.
    where = f"{count - 1} other{'s' * (count > 2)} at {coordinator}"
    _initialize(
        where, coordinator_address=coordinator, num_processes=count, process_id=place,
        cluster_detection_method="deactivate",
    )  # fmt: skip


def _refuse_taken(port: int) -> None:
    """Raise PipelineError if another program listens at the port: JAX would end in a fault."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", port))
        except OSError as error:
            why = f"port {port} of --coordinator is taken ({error.strerror})"
            raise PipelineError(ALONE.format(why=why, alone="")) from error


def _initialize(where: str, alone: str = "", **given: object) -> None:
    import jax

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _signal: _end(alone))
    _handlers.append(handler)
    # JAX ends a process with SIGABRT from a thread of its own, where Python handles no signal.
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)
    update: Any = jax.config.update
    update("jax_check_proxy_envs", False)  # it warns of what `join` has set
    limits = {"heartbeat_timeout_seconds": SILENCE, "initialization_timeout": PATIENCE}
    print(f"Waiting up to {PATIENCE} seconds for {where}", file=sys.stderr, flush=True)
    # JAX waits without looking whether Python was interrupted, and would keep SIGTERM to itself.
    kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        jax.distributed.initialize(**given, **limits)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise PipelineError(ALONE.format(why=why, alone=alone)) from error
    finally:
        for one, before in kept.items():
            signal.signal(one, before)
    _joined.append(True)


def _end(alone: str) -> None:
    why = ALONE.format(why=f"not within {PATIENCE} seconds", alone=alone)
    os.write(2, f"\nError: {ENDED if _joined else why}\n".encode())
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


def refuse_differences(what: str, values: Mapping[str, Any], edit: str) -> None:
    """Return if all processes have the same values; else they would compute something that none of
    them was asked for, or wait for each other.

    Args:
        what: of which these are parts.
        values: for JSON, by names that all processes have.
        edit: what mends a difference.

    Raises:
        ConfigError: if a value is another one in another process.
    """
    if count() == 1:
        return
    from jax.experimental import multihost_utils

    texts = {name: json.dumps(value, sort_keys=True) for name, value in sorted(values.items())}
    mine = np.array([zlib.crc32(text.encode()) for text in texts.values()], np.uint32)
    every = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1, len(texts))
    different = np.flatnonzero((every != every[0]).any(axis=0))
    if len(different):
        names = [list(texts)[place] for place in different]
        here = "; ".join(f"here {name} is {texts[name][:200]}" for name in names)
        raise ConfigError(
            f"The processes differ in {', '.join(names)} of {what}; expected the same in all"
            f" ({here}).\n{edit}"
        )


def part() -> None:
    """Wait until all processes have come to the end: from here on none needs another."""
    if count() > 1 and not _parted:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("the training has ended")
        _parted.append(True)


@contextmanager
def folder(output: Path) -> Iterator[Path]:
    """Give each process a folder of its own: the first one `output`, the others a copy of what a
    run resumes from, which is removed.

    Raises:
        ConfigError: if the others see another folder there.
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
        try:
            _refuse_another(output)
            if not first():
                with reading(output, ConfigError, "Give --output a folder that all can read."):
                    left = ("decoded", "artifact", "compiled", "checkpoints-set-aside-*", MARK)
                    shutil.copytree(output, here, ignore=shutil.ignore_patterns(*left))
            multihost_utils.sync_global_devices("the folder is copied")
            yield here
            part()
        except Exception as error:
            # An error in an own model is told as one of its file, with what JAX said as its cause.
            for told in (error, error.__cause__):
                broken = isinstance(told, jax.errors.JaxRuntimeError)
                if broken and any(word in str(told) for word in BROKEN):
                    why = str(told).splitlines()[0][:200]
                    raise PipelineError(f"{ENDED}\n({why})") from error
            raise


def _refuse_another(output: Path) -> None:
    """Raise ConfigError in every process if one sees another folder at `output` than the first."""
    mark, written = shared(uuid.uuid4().hex), output / MARK
    if first():
        with writing(output):
            output.mkdir(parents=True, exist_ok=True)
            written.write_text(mark)
    try:
        # It comes to the others when the first one has written it: they wait for its number.
        shared("written")
        seen = written.is_file() and written.read_text() == mark
        edit = "Put --output on a file system that they share."
        refuse_differences("the run", {f"what they see in --output {output}": seen}, edit)
    finally:
        if first():
            written.unlink(missing_ok=True)


def leave(code: int) -> None:
    """End a process that others wait for, after an error: JAX would wait for them."""
    if _joined and code and not _parted:
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
