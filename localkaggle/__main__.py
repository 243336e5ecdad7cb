"""python -m localkaggle serve|export: a Kaggle on this machine, and its competitions as folders."""

import argparse
import errno
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from localkaggle import competitions, facts
from localkaggle.facts import SESSION_SECONDS
from localkaggle.services.datasets import parse_published

T = TypeVar("T")
EXAMPLES = """examples:
  python -m localkaggle serve
  python -m localkaggle export digits data/digits
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code (docs/dev/design.md)."""
    parser = argparse.ArgumentParser(
        "python -m localkaggle",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="serve|export")
    serving = commands.add_parser(
        "serve",
        help="serve until Ctrl-C",
        description="Serve on 127.0.0.1 until Ctrl-C.",
        epilog="Example: python -m localkaggle serve --folder kaggle --offline",
    )
    serving.set_defaults(command=_serve)
    add = serving.add_argument
    add(
        "--port",
        type=_checked(_port),
        help="default: the last one of its folder, or a free one",
    )
    add(
        "--folder",
        type=Path,
        help="where to keep everything, and what was kept there before: give it again to go on;"
        " default: a temporary folder, removed at the end",
    )
    add(
        "--offline",
        action="store_true",
        help="no session gets the internet, not even one that asks for it",
    )
    add(
        "--layout",
        choices=facts.WORDS["layout"],
        help="of /kaggle/input: competitions/SLUG (2026, the default); as before, SLUG (flat); or"
        " both at once",
    )
    add(
        "--facts",
        type=_checked(lambda text: facts.read(Path(text))),
        default={},
        metavar="FILE",
        help="behave as a file of `invoke doctor --live` says; --layout wins over it",
    )
    add(
        "--session-seconds",
        type=_checked(_seconds),
        help="kill a session after this many; default: Kaggle's 9 hours for a TPU, 12 for others",
    )
    add(
        "--dataset",
        type=_checked(parse_published),
        action="append",
        default=[],
        metavar="OWNER/SLUG=DIR",
        help="mount the files in DIR as a dataset that others published; repeat for more",
    )
    export = commands.add_parser(
        "export",
        help="write a competition as Kaggle would mount it",
        description="Write an embedded competition's folder.",
        epilog="Example: python -m localkaggle export digits data/digits",
    )
    export.set_defaults(command=_export)
    export.add_argument("competition", help=f"one of: {', '.join(competitions.NAMES)}")
    export.add_argument("folder", type=Path, help="a new or empty folder")
    options = parser.parse_args(arguments)
    return int(options.command(options))


def _checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return what reads the value of an option, and tells argparse what was wrong with it."""

    def checked(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError(f"{text}: expected a port: 0 (a free one) to 65535")
    return int(text)


def _seconds(text: str) -> float:
    if not 1 <= float(text) <= 12 * 3600:
        raise ValueError(f"{text}: expected the length of a session: 1 to 43200 seconds")
    return float(text)


def _serve(options: argparse.Namespace) -> int:
    seconds = options.session_seconds
    return serve(
        options.folder,
        "python -m localkaggle serve",
        port=options.port,
        offline=options.offline,
        datasets=dict(options.dataset),
        session_seconds=dict.fromkeys(SESSION_SECONDS, seconds) if seconds else None,
        **{**options.facts, **({"layout": options.layout} if options.layout else {})},
    )


def serve(folder: Path | None, command: str, **more: Any) -> int:
    """Serve until SIGINT or SIGTERM, say what to paste into another shell, and return an exit code.

    Args:
        folder: where to keep everything; None: a temporary folder, removed at the end.
        command: that serves, without --folder and --port.
        more: what else `LocalKaggle` takes.
    """
    from localkaggle.server import LocalKaggle
    from localkaggle.sessions.session import NO_NAMESPACES, namespaces

    stop = threading.Event()
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: stop.set()))
        place = folder or Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="localkaggle-", ignore_cleanup_errors=True)
            )
        )
        try:
            kaggle = LocalKaggle(place, **more)
        except (FileExistsError, ValueError) as error:
            return _refused(2, f"{error}", f"{command} --folder {_beside(place)}")
        except OSError as error:
            said = f"could not serve: {error}; expected a free port and a folder to write in"
            if error.errno == errno.EADDRINUSE:
                return _refused(2, said, f"{command} --folder {shlex.quote(str(place))} --port 0")
            return _refused(8, said, command)
        stack.enter_context(kaggle)
        hosted = f"competitions: {', '.join(kaggle.competitions)}"
        print(f"# A Kaggle on 127.0.0.1:{kaggle.port}, {hosted}; its files are in {place}")
        if not namespaces():
            print(f"# {NO_NAMESPACES}.")
        print("# Paste this into another shell, and use kaggle or invoke there:")
        print("# (a token of your own would win over the key below)")
        print("unset KAGGLE_API_TOKEN KAGGLE_API_V1_TOKEN")
        for name, value in kaggle.environment.items():
            print(f"export {name}={shlex.quote(value)}")
        print("# Ctrl-C ends it.", flush=True)
        stop.wait()
    print("# Ended, with all of its sessions.")
    return 0


def _beside(folder: Path) -> str:
    """Return a new folder beside one, for a shell."""
    place, number = folder.resolve(), 2
    while (new := place.with_name(f"{place.name}-{number}")).exists():
        number += 1
    return shlex.quote(str(new))


def _export(options: argparse.Namespace) -> int:
    name, folder = options.competition, options.folder
    if name not in competitions.NAMES:
        return _refused(
            2,
            f"there is no competition {name!r} here; expected one of:"
            f" {', '.join(competitions.NAMES)}",
            f"python -m localkaggle export digits {shlex.quote(str(folder))}",
        )
    again = f"python -m localkaggle export {name} {_beside(folder)}"
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            return _refused(2, f"{folder} is not an empty folder; expected one or a new one", again)
        competitions.EMBEDDED[name]().write(folder)
    except OSError as error:
        said = f"could not write {folder}: {error.strerror}; expected a disk with space to write"
        return _refused(8, said, again)
    print(f"Wrote the competition {name} to {folder}")
    return 0


def _refused(code: int, said: str, command: str) -> int:
    """Print what happened and what to type now, and return the exit code."""
    print(f"Error: {said}.\n{command}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
