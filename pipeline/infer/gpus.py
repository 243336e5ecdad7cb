"""GPUs: a test set is predicted by this process, or by several, each of which has one GPU.

A process is a new program ("spawn"), since a notebook cannot fork with a GPU in use. It gets the
artifact that the parent has verified, and sends each block of predictions as soon as it is there.
So whatever ends a process, its finished blocks are kept; the parent computes the others, if there
is time.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import keras

from formats.errors import KnownError
from pipeline import config as configs
from pipeline.artifact import Artifact
from pipeline.config import custom_code
from pipeline.data.test_set import TestSet, read_test
from pipeline.infer import check, predict
from pipeline.infer.check import Checked
from pipeline.infer.predict import Block, Deadline, Show

# A config has read-only mappings, which no process can send to another.
ForkingPickler.register(MappingProxyType, lambda proxy: (dict, (dict(proxy),)))


class Job(NamedTuple):
    """What is predicted.

    Attributes:
        artifact: verified.
        folder: of the competition.
        precision: as `check.restore` takes it.
        deadline: when predicting has to end.
    """

    artifact: Artifact
    folder: Path
    precision: str
    deadline: Deadline


class _Process:
    """A process of one GPU.

    Attributes:
        name: for messages.
        connection: gives what the process sends: what `results` yields, and lines to show.
        rows: that it has not predicted yet.
    """

    def __init__(self, number: int, job: Job, rows: range) -> None:
        self.name, self.rows = f"process {number + 1}", rows
        self.connection, sender = multiprocessing.Pipe(duplex=False)
        # No other process finds custom code outside of pipeline/configs by the config's name.
        code = custom_code.elsewhere(job.artifact.config)
        self.process = SpawnProcess(target=work, args=(sender, job, rows, code), daemon=True)
        with _one_gpu(number):
            self.process.start()
        sender.close()  # so that the connection ends with the process


def results(job: Job, test: TestSet, processes: int, show: Show) -> Iterator[Checked | Block]:
    """Yield the predictions of a test set as far as there is time, and the golden check of each
    process before its first block.

    Where one of several processes failed, this one computes the rest.
    """
    parts = [range(len(test))]
    if processes > 1:
        bounds = [len(test) * number // processes for number in range(processes + 1)]
        shares = [range(*ends) for ends in pairwise(bounds)]
        show(f"{len(test):,} rows go to {processes} processes, one per GPU")
        started = [_Process(number, job, rows) for number, rows in enumerate(shares)]
        yield from _received(started, job.deadline, show)
        parts = [process.rows for process in started if process.rows]
        for rows in parts if predict.clock() < job.deadline.end else ():
            show(f"Rows {rows.start:,} to {rows.stop - 1:,} are computed here")
    if parts and (processes == 1 or predict.clock() < job.deadline.end):
        yield from _here(job, test, parts, show)


def _here(job: Job, test: TestSet, parts: Sequence[range], show: Show) -> Iterator[Checked | Block]:
    """Yield the golden check and the predictions that this process computes."""
    most = max(map(len, parts))
    forward, checked = check.restore(job.artifact, job.precision, rows=most, show=show)
    yield checked
    for rows in parts:
        yield from predict.predicted_blocks(
            job.artifact, test, forward, rows, deadline=job.deadline, show=show
        )


def _received(
    processes: Sequence[_Process], deadline: Deadline, show: Show
) -> Iterator[Checked | Block]:
    """Yield what processes send, until all have ended or the time is up; then end them."""
    running = list(processes)
    try:
        while running and (left := deadline.end - predict.clock()) > 0:
            ready = wait([each.connection for each in running], min(left, 60.0))
            for each in [each for each in running if each.connection in ready]:
                try:
                    sent = each.connection.recv()
                except (EOFError, OSError):  # it has ended
                    running.remove(each)
                    each.process.join()
                    if code := each.process.exitcode:
                        how = signal.Signals(-code).name if code < 0 else code
                        left_over = f"{len(each.rows):,} of its rows are left"
                        show(f"Warning: {each.name} ended with {how}; {left_over}")
                    continue
                if isinstance(sent, str):
                    show(f"{each.name.capitalize()}: {sent}")
                    continue
                if isinstance(sent, Block):
                    each.rows = range(sent.start + len(sent.values), each.rows.stop)
                yield sent
    finally:
        for each in processes:
            each.process.kill()
            each.process.join()


def work(connection: Connection, job: Job, rows: range, code: str) -> None:
    """Predict rows and send what `results` yields: the program of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    try:
        if code:
            configs.load(code)
        custom_code.require(job.artifact.config, job.artifact.manifest["custom_code"])
        test = read_test(job.folder, job.artifact.config, job.artifact.encoding)
        for each in _here(job, test, [rows], connection.send):
            connection.send(each)
    except KnownError as error:
        connection.send(f"Error: {error}")
        sys.exit(error.exit_code)


@contextmanager
def _one_gpu(number: int) -> Iterator[None]:
    """Let a process that is started here see GPU `number` of those that this process may use."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    before = dict(os.environ)
    os.environ["CUDA_VISIBLE_DEVICES"] = seen[number % len(seen)] if seen else str(number)
    os.environ["KERAS_BACKEND"] = keras.backend.backend()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # start-up messages hide ours
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
