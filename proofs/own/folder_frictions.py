"""The frictions of a newcomer with a folder and after a rehearsal, and the list of all."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from proofs.own import frictions
from proofs.own.frictions import SECONDS, Friction, export, said
from proofs.shared.environment import Checkout


def after_a_rehearsal(checkout: Checkout, folder: Path) -> Iterator[Friction]:
    """Rehearse once, and do what one does then."""
    done = checkout.run("invoke dry-run", log=folder / "dry-run.log")
    lines = done.output.splitlines()
    warnings = [line for line in lines if "Warning" in line]
    logs = list((checkout.root / "runs").glob("dry-run-*/digits-train-tpu-v1/*.log"))
    newest = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    if newest is not None:
        text = newest.read_text(errors="replace")
        warnings += [line for line in text.splitlines() if line.startswith("Warning")]
    yield Friction(
        "The demo on its own config",
        "warns of 8.4 steps an epoch",
        "; ".join(warnings)[:200] or "no warning",
        done.code == 0 and newest is not None and not warnings,
    )
    score = next((line for line in lines if line.startswith("score ")), "no score")
    yield Friction(
        "The score of a rehearsal",
        "`100 rows` beside 500 hidden digits, unexplained",
        score,
        "on the hidden test set" in score and "rows of the visible one" in score,
    )
    named = next((line for line in lines if line.startswith("report ")), "report      false")
    for name, command in (
        ("The report line of a rehearsal", named.removeprefix("report").strip()),
        ("`invoke report` after a rehearsal", "invoke report"),
    ):
        made = checkout.run(command, log=folder / "report.log", timeout_seconds=SECONDS)
        yield Friction(
            name,
            "the journal knows no push of train-tpu",
            said(made.code, made.output),
            made.code == 0 and "wrote " in made.output,
        )


def folder_of_ones_own(checkout: Checkout, folder: Path) -> Friction:
    """Rehearse a config for a competition that the local Kaggle does not have."""
    command = "invoke dry-run --config cifar100_wrn"
    done = checkout.run(command, log=folder / "none.log", timeout_seconds=SECONDS)
    return Friction(
        "`dry-run` with a competition of one's own",
        "The local Kaggle has no competition …; `--input`: No idea what that is",
        said(done.code, done.output),
        done.code == 2 and done.output.rstrip().endswith(f"{command} --input DIR"),
    )


def not_supported(checkout: Checkout, folder: Path) -> Friction:
    """Inspect a competition of masks."""
    data = folder / "data"
    (data / "train").mkdir(parents=True)
    rows = "".join(f"i{number},{number + 1} 3 {number + 9} 4\n" for number in range(30))
    (data / "train.csv").write_text(f"image,rle_mask\n{rows}")
    (data / "sample_submission.csv").write_text("image,rle_mask\nx1,1 1\nx2,1 1\n")
    command = shlex.join(["invoke", "inspect", "--input", str(data)])
    done = checkout.run(command, log=folder / "masks.log", timeout_seconds=SECONDS)
    return Friction(
        "Segmentation",
        "has 50 labels in one row alone … Drop these rows, or merge labels",
        said(done.code, done.output, 0),
        done.code == 1 and "segmentation" in done.output and "docs/segmentation.md" in done.output,
    )


def short_rehearsal(checkout: Checkout, folder: Path) -> Friction:
    """Rehearse a folder within a minute and a half."""
    data = folder / "data"
    export(checkout, data)
    command = f"invoke dry-run --config digits --input {shlex.quote(str(data))} --budget 90s"
    done = checkout.run(command, log=folder / "short.log", timeout_seconds=SECONDS)
    score = next((line for line in done.output.splitlines() if line.startswith("score ")), "")
    return Friction(
        "A smoke of the whole chain",
        "--max-steps 5 leaves no artifact; a copy of the config by hand",
        f"{score}; {done.seconds:.0f} s",
        done.code == 0 and bool(score),
    )


def time_and_name(checkout: Checkout, folder: Path) -> Friction:
    """Inspect a folder called competition, for a budget."""
    data, config = folder / "competition", folder / "mine.py"
    export(checkout, data)
    words = ["invoke", "inspect", "--input", str(data), "--write", str(config), "--for", "cpu"]
    words += ["--budget", "60s"]
    done = checkout.run(shlex.join(words), log=folder / "name.log", timeout_seconds=SECONDS)
    epochs = next((line for line in done.output.splitlines() if "of --budget" in line), "")
    text = config.read_text() if config.is_file() else ""
    return Friction(
        "How long a training may take, and what a competition is called",
        "8 epochs by an estimate of 67 s (155 s there); competition 'competition'",
        epochs.strip()[:200],
        bool(epochs) and 'competition="mine"' in text,
    )


QUICK: tuple[Callable[[Checkout, Path], Friction], ...] = (
    frictions.full_disk,
    frictions.one_meaning,
    frictions.wrong_key,
    frictions.old_python,
    frictions.missing_package,
    frictions.missing_slug,
    frictions.skipped_row,
    frictions.unknown_command,
    frictions.interrupted,
    folder_of_ones_own,
    not_supported,
)
SLOW: tuple[Callable[[Checkout, Path], Friction], ...] = (
    frictions.all_cores,
    frictions.readable_progress,
    frictions.quoted_commands,
    short_rehearsal,
    time_and_name,
)


def met(checkout: Checkout, folder: Path, *, short: bool) -> Iterator[Friction]:
    """Yield every friction; `short` leaves out what trains or rehearses."""
    for number, look in enumerate((*QUICK, *(() if short else SLOW))):
        place = folder / f"{number}-{look.__name__}"
        place.mkdir(parents=True)
        yield look(checkout, place)
    if not short:
        yield from after_a_rehearsal(checkout, folder)
