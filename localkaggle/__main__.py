"""python -m localkaggle serve|export: a Kaggle on this machine, and its competitions as folders."""

import argparse
import errno
import shlex
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from localkaggle import competitions, facts
from localkaggle.services import datasets, models

EXAMPLES = """examples:
  python -m localkaggle serve
  python -m localkaggle serve --folder kaggle --offline
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
    serving = commands.add_parser("serve", help="serve on 127.0.0.1 until Ctrl-C")
    serving.set_defaults(command=_serve, parser=serving)
    add = serving.add_argument
    add("--port", type=int, help="default: the last one of its folder, or a free one")
    said = "where to keep everything, or to go on; default: a temporary one, removed at the end"
    add("--folder", type=Path, help=said)
    add("--offline", action="store_true", help="no session gets the internet")
    said = "behave as a file of `invoke doctor --live` says"
    add("--facts", type=Path, metavar="FILE", help=said)
    said = "mount the files in DIR as a dataset that others published; repeat for more"
    add("--dataset", action="append", default=[], metavar="OWNER/SLUG=DIR", help=said)
    said = "mount the files in DIR as a version of a model, by its five names; repeat for more"
    add("--model", action="append", default=[], metavar="NAME=DIR", help=said)
    export = commands.add_parser("export", help="write a competition as Kaggle would mount it")
    export.set_defaults(command=_export)
    export.add_argument("competition", choices=competitions.NAMES)
    export.add_argument("folder", type=Path, help="a new or empty one")
    options = parser.parse_args(arguments)
    return int(options.command(options))


def _serve(options: argparse.Namespace) -> int:
    try:
        more = facts.read(options.facts) if options.facts else {}
        more["datasets"] = dict(map(datasets.parse_published, options.dataset))
        more["models"] = dict(map(models.parse_published, options.model))
    except ValueError as error:
        options.parser.error(str(error))
    if not 0 <= (options.port or 0) <= 65535:
        options.parser.error("--port: expected 0 (a free one) to 65535")
    command = "python -m localkaggle serve"
    more |= {"port": options.port, "offline": options.offline}
    return serve(options.folder, command, **more)


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
        aside = tempfile.TemporaryDirectory(prefix="localkaggle-", ignore_cleanup_errors=True)
        place = folder or Path(stack.enter_context(aside))
        try:
            kaggle = stack.enter_context(LocalKaggle(place, **more))
        except (FileExistsError, ValueError) as error:
            return _refused(2, f"{error}", f"{command} --folder {_beside(place)}")
        except OSError as error:
            said = f"could not serve: {error}; expected a free port and a folder to write in"
            if error.errno != errno.EADDRINUSE:
                return _refused(8, said, command)
            return _refused(2, said, f"{command} --folder {shlex.quote(str(place))} --port 0")
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


def _export(options: argparse.Namespace) -> int:
    name, folder = options.competition, options.folder
    again = f"python -m localkaggle export {name} {_beside(folder)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            return _refused(2, f"{folder} is not an empty folder; expected one or a new one", again)
        competitions.EMBEDDED[name]().write(folder)
    except OSError as error:
        said = f"could not write {folder}: {error.strerror}; expected a disk with space to write"
        return _refused(8, said, again)
    print(f"Wrote the competition {name} to {folder}")
    return 0


def _beside(folder: Path) -> str:
    """Return another folder beside one, for a shell."""
    place = folder.resolve()
    return shlex.quote(str(place.with_name(f"{place.name}-2")))


def _refused(code: int, said: str, command: str) -> int:
    """Print what happened and what to type now, and return the exit code."""
    print(f"Error: {said}.\n{command}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
