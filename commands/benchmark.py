"""The benchmark of 2018 and ours: on this machine, on Kaggle, and the page of what they measured.

They are the authors' more than a competitor's, so `python -m commands` runs them.
"""

import os
import shlex
from pathlib import Path
from typing import Any

from commands.console import ROOT, Result, limit, number, show, task
from commands.project import connect, embedded, records, show_push
from commands.telling import Telling

CPU, TPU = "cpu", "tpu-v5e-8"
GRID = {
    "batch": "images a step, with commas between; default: the config's, a half and a quarter",
    "pattern": "as 1,3 or 1..8; 1: training alone, 2: with validation, 3: and augmentation; 4 to 6:"
    " the same from PNG files; 7 and 8: as 4 and 6, with 4 workers; default: all",
    "epochs": "of each training, 2 or more (default 3)",
}


@task(
    batch=GRID["batch"],
    pattern=GRID["pattern"],
    epochs=GRID["epochs"],
    input="the competition's folder; default: a new copy of the embedded one",
    output="folder of the results, which a rerun goes on with; default: runs/bench-CONFIG",
    minutes="after which no other training begins (default 10)",
)
def bench(
    config: str = "",
    input: str = "",
    output: str = "",
    batch: str = "",
    pattern: str = "",
    epochs: str = "",
    minutes: str = "10",
) -> Result:
    """Time trainings on this machine, in the way of a benchmark of 2018 and in ours.

    Example: python -m commands bench --pattern 1,3
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up chatter hides our lines
    from pipeline import config as configs
    from workbench.benchmark import bench_command, images

    settings = configs.load(config)
    images.require(settings)
    folder = Path(output) if output else ROOT / "runs" / f"bench-{settings.name}"
    data = Path(input) if input else None
    if data is None and images.mounted(settings):
        again = f"python -m commands bench --config {shlex.quote(config or settings.name)}"
        data = embedded(settings.competition, folder / "data", again)
    given = {"batch": batch, "pattern": pattern, "epochs": epochs, "images": "", "minutes": minutes}
    made = bench_command.measure(config, data, folder, given, show)
    return {**made, **_page([folder], folder, 0, "")}


@task(
    runs="output folders of benchmarks, with commas between; default: all in runs/",
    output="folder of the page and its pictures; default: runs/bench-report",
    pattern="to compare, 1 to 8; default: 3, or the first that was measured",
    accuracy="on the training images, to which the times are compared (default 0.5)",
)
def bench_report(runs: str = "", output: str = "", pattern: str = "", accuracy: str = "") -> Result:
    """Write one page of any benchmarks, of any machines, beside the one of 2018.

    Example: python -m commands bench-report --accuracy 0.9
    """
    folders = [Path(name.strip()) for name in runs.split(",") if name.strip()]
    folders = folders or sorted(
        {path.parents[2] for path in (ROOT / "runs").glob("*/cells/*/*.json")}
    )
    chosen = int(number("pattern", pattern, 1, 8)) if pattern else 0
    place = Path(output) if output else ROOT / "runs" / "bench-report"
    return _page(folders, place, chosen, accuracy)


@task(
    limit(15),
    batch=GRID["batch"],
    pattern=GRID["pattern"],
    epochs=GRID["epochs"],
    for_="what is measured: tpu-v5e-8 (default), gpu-t4x2 or cpu",
    fresh="measure all again, whatever earlier sessions have measured",
)
def push_bench(
    config: str = "",
    for_: str = TPU,
    batch: str = "",
    pattern: str = "",
    epochs: str = "",
    again: bool = False,
    fresh: bool = False,
    yes: bool = False,
) -> Result:
    """Time trainings on Kaggle, as many as its session and the quota allow; rerun to go on.

    Example: python -m commands push-bench --config cifar100_wrn --for gpu-t4x2 --epochs 10
    """
    from deploy import chain
    from deploy.errors import UsageError
    from deploy.project import BENCH, SHAPES
    from pipeline import config as configs
    from workbench.benchmark import bench_command, images

    if for_ not in (CPU, *SHAPES):
        raise UsageError(
            f"--for {for_[:40]}: expected one of {', '.join((*SHAPES, CPU))}.\nCorrect it."
        )
    settings = configs.load(config)
    images.require(settings)
    given = {"batch": batch, "pattern": pattern, "epochs": epochs}
    options = {name: value for name, value in given.items() if value}
    bench_command.read(settings, options)
    runtime = "" if for_ == CPU else for_
    ours = records(config, runtime=runtime, mounts=images.mounted(settings), options=options)
    telling = Telling.spending(yes)
    steps = chain.push_kernel(connect(telling), ours, BENCH, again=again, fresh=fresh)
    return show_push(telling.complete(steps), ours.project.command("watch --kernel bench"))


def _page(folders: list[Path], output: Path, pattern: int, accuracy: str) -> dict[str, Any]:
    from pipeline.runtime import backend

    backend.choose("jax")
    from workbench.benchmark_page import bench_report

    share = {"accuracy": number("accuracy", accuracy, 0.01, 0.999)} if accuracy else {}
    made = bench_report.write(folders, output, show, pattern=pattern, **share)
    for line in made["advice"]:
        show(line)
    return made
