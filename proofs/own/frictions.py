"""The frictions of a newcomer's first evening: what happened then, and what happens now.

Each function runs the command that the newcomer gave and looks at what it prints.
`proofs.own.folder_frictions` lists all of them.
"""

import os
import pty
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import namespaces
from pipeline.runtime import devices as runtime
from proofs.shared.environment import Checkout
from tests.faults.world import competition

SECONDS = 300.0  # after which a command hangs
OLD_PYTHON = "import sys; sys.version_info = (3, 10, 12, 'final', 0); sys.argv[0] = 'invoke'; "
NO_PACKAGE = "import sys; sys.modules['requests'] = None; sys.argv[0] = 'invoke'; "
INVOKE = "from invoke.main import program; program.run()"


class Friction(NamedTuple):
    """One friction.

    Attributes:
        name: what the newcomer tried.
        before: what happened at commit 07ff1c6.
        after: what happens now, as seen in this run.
        held: whether that is what should happen.
    """

    name: str
    before: str
    after: str
    held: bool


def all_cores(checkout: Checkout, folder: Path) -> Friction:
    """Train on a CPU: every core is a device."""
    done = checkout.run(training_command(folder), log=folder / "cores.log", timeout_seconds=SECONDS)
    devices = re.search(r"^Devices: (\d+) x cpu", done.output, re.MULTILINE)
    count, cores = int(devices[1]) if devices else 0, runtime.cores()
    after = f"{count} devices on {cores} cores, exit {done.code}"
    return Friction(
        "`python -m pipeline train` uses the CPU",
        "one device",
        after,
        count == runtime.cpu_devices(128, cores),
    )


def readable_progress(checkout: Checkout, folder: Path) -> Friction:
    """Train on a terminal, and into a pipe."""
    command = training_command(folder)
    piped = checkout.run(command, log=folder / "piped.log", timeout_seconds=SECONDS).output
    shown = _on_a_terminal(checkout, command)
    in_words = re.search(r"^step 4 of \d+  epoch .* images/s", shown, re.MULTILINE)
    held = bool(in_words) and '"step"' not in shown and '{"step": 4' in piped
    after = in_words[0] if in_words else shown[-200:]
    return Friction("Progress of a training on a terminal", "raw JSON", after, held)


def full_disk(checkout: Checkout, folder: Path) -> Friction:
    """Rehearse with 6 MB for runs/."""
    (checkout.root / "runs").mkdir(exist_ok=True)
    inside = "mount -t tmpfs -o size=6m none runs && exec invoke dry-run"
    command = shlex.join([*namespaces(), "sh", "-c", inside])
    done = checkout.run(command, log=folder / "disk.log", timeout_seconds=SECONDS)
    held = done.code == 8 and "disk is full" in done.output and "Traceback" not in done.output
    return Friction(
        "A rehearsal on a full disk",
        "a traceback, then `Check the network`, exit 6",
        said(done.code, done.output),
        held,
    )


def quoted_commands(checkout: Checkout, folder: Path) -> Friction:
    """Inspect a folder whose name has a space, and take the command that is printed."""
    data, config = folder / "my data", folder / "my configs" / "leaves.py"
    config.parent.mkdir()
    export(checkout, data)
    words = ["invoke", "inspect", "--input", str(data), "--write", str(config)]
    done = checkout.run(shlex.join(words), log=folder / "quoted.log", timeout_seconds=SECONDS)
    following = shlex.split(done.output.strip().splitlines()[-1])
    held = {str(data), str(config)} <= set(following)
    return Friction(
        "The next command, with a path that has spaces",
        "not quoted: `No idea what 'data' is!`",
        shlex.join(following)[-200:],
        held,
    )


def one_meaning(checkout: Checkout, folder: Path) -> Friction:
    """Give dry-run and init the options that had another meaning elsewhere."""
    said = [
        checkout.run(f"invoke {words}", log=folder / "meaning.log", timeout_seconds=SECONDS)
        .output.strip()
        .splitlines()[0]
        for words in ("dry-run --competition x", "init -o x")
    ]
    return Friction(
        "`--competition`, and `init -o`",
        "a slug in two commands, MODULE:FUNCTION in a third; -o is --config in one",
        "; ".join(said),
        ["has no option --competition" in said[0], "has no option -o" in said[1]] == [True, True],
    )


def wrong_key(checkout: Checkout, folder: Path) -> Friction:
    """Push with a key that Kaggle does not know."""
    with LocalKaggle(folder / "kaggle", competitions=[competition()], offline=True) as local:
        given = {**local.environment, "KAGGLE_KEY": "0" * 32}
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in given.items())
        done = checkout.run(
            f"env {settings} invoke push-train --config digits --yes",
            log=folder / "key.log",
            timeout_seconds=SECONDS,
        )
        refused = [method for method, _, code, _ in local.journal if code == 401]
    first = done.output.splitlines()[0] if done.output else ""
    held = done.code == 3 and first.startswith("Logging in to ") and len(refused) == 1
    return Friction(
        "push-train with a wrong key",
        "nothing printed for 40 s",
        f"at once: {first}; asked {len(refused)} time; {said(done.code, done.output, 1)}",
        held,
    )


def old_python(checkout: Checkout, folder: Path) -> Friction:
    """Install and start under a Python that says it is 3.10."""
    texts = []
    for name, code in (("invoke", f"{OLD_PYTHON}{INVOKE}"), ("pip", _building(OLD_PYTHON))):
        command = shlex.join(["python", "-c", code, "--list"])
        done = checkout.run(command, log=folder / f"{name}.log", timeout_seconds=SECONDS)
        texts.append((done.code, done.output))
    held = all("expects Python 3.11 to 3.13" in text for _, text in texts)
    return Friction(
        "Python 3.10",
        "pip lists every version of kaggle; invoke: `cannot import name 'Self'`",
        said(*texts[0], 0),
        held and all(code == 2 and "Traceback" not in text for code, text in texts),
    )


def missing_package(checkout: Checkout, folder: Path) -> Friction:
    """Give a command where the packages are not installed."""
    command = shlex.join(["python", "-c", f"{NO_PACKAGE}{INVOKE}", "push-train"])
    done = checkout.run(command, log=folder / "package.log", timeout_seconds=SECONDS)
    held = done.code == 2 and "has no package 'requests'" in done.output
    return Friction(
        "Without the packages",
        "a traceback: No module named 'requests'",
        said(done.code, done.output, 0),
        held and "-m pip install -e" in done.output.splitlines()[-1],
    )


def missing_slug(checkout: Checkout, folder: Path) -> Friction:
    """Give init no competition."""
    done = checkout.run("invoke init", log=folder / "slug.log", timeout_seconds=SECONDS)
    held = done.code == 2 and done.output.startswith("--competition is missing")
    after = said(done.code, done.output, 0)
    return Friction("init without a competition", "'' is no slug", after, held)


def skipped_row(checkout: Checkout, folder: Path) -> Friction:
    """Let doctor look at a machine without credentials."""
    (folder / "home").mkdir()
    home = shlex.quote(str(folder / "home"))
    done = checkout.run(
        f"env HOME={home} invoke doctor", log=folder / "doctor.log", timeout_seconds=SECONDS
    )
    row = next((line for line in done.output.splitlines() if re.match(r"SKIP +login", line)), "")
    return Friction(
        "doctor without credentials",
        "SKIP sign-in not looked at, because of the row 'credentials'",
        " ".join(row.split()),
        row.endswith("not checked; it needs the row 'credentials'"),
    )


def unknown_command(checkout: Checkout, folder: Path) -> Friction:
    """Mistype a command of the model side."""
    done = checkout.run("python -m pipeline trian", log=folder / "argument.log")
    return Friction(
        "A mistyped command",
        "the error lists a hidden command, share",
        done.output.strip().splitlines()[-1][:160],
        done.code == 2 and "share" not in done.output and "train" in done.output,
    )


def interrupted(checkout: Checkout, folder: Path) -> Friction:
    """Press Ctrl-C in a rehearsal."""
    process = subprocess.Popen(
        ["invoke", "dry-run"],
        cwd=checkout.root,
        env=_environment(checkout),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    text = ""
    for line in process.stdout:
        text += line
        if "Push train-tpu" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    text += process.stdout.read()
    code = process.wait(SECONDS)
    return Friction(
        "Ctrl-C in a rehearsal",
        "does not say that a rehearsal cannot be resumed",
        said(code, text),
        code == 130 and "A rehearsal cannot be resumed" in text,
    )


def training_command(folder: Path) -> str:
    """Return the command of a training of four steps in `folder`, with its data."""
    data, output = shlex.quote(str(folder / "data")), shlex.quote(str(folder / "out"))
    return (
        f"(test -e {data} || python -m localkaggle export digits {data}) && rm -rf {output} &&"
        f" python -m pipeline train --config digits --input {data} --output {output} --max-steps 4"
    )


def export(checkout: Checkout, data: Path) -> None:
    """Write the folder of the embedded digits."""
    command = shlex.join(["python", "-m", "localkaggle", "export", "digits", str(data)])
    checkout.run(command, log=data.with_suffix(".log"), timeout_seconds=SECONDS)


def _environment(checkout: Checkout) -> dict[str, str]:
    """Return the environment of a user whose own is that of the checkout."""
    outer = ("KAGGLE", "XLA", "JAX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    return {**kept, "PATH": f"{checkout.programs}:{os.environ['PATH']}"}


def _on_a_terminal(checkout: Checkout, command: str) -> str:
    """Return what a shell command prints on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=checkout.root,
        env=_environment(checkout),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # Linux ends a terminal that nobody writes to with EIO
        pass
    os.close(ours)
    process.wait(SECONDS)
    return shown.decode(errors="replace").replace("\r\n", "\n")


def _building(before: str) -> str:
    """Return the code with which pip asks this project for its dependencies."""
    build = "from setuptools import build_meta; build_meta.get_requires_for_build_editable()"
    return f"{before}{build}"


def said(code: int, output: str, line: int = -1) -> str:
    """Return an exit code and one line of what was printed, by default the last."""
    lines = output.strip().splitlines() or [""]
    return f"exit {code}: {lines[min(line, len(lines) - 1)][:200]}"
