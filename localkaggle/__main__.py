"""Run a local Kaggle server, or export one of its competitions to a folder."""

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
from localkaggle.services import protocol

EXAMPLES = """examples:
  python -m localkaggle serve
  python -m localkaggle serve --folder kaggle --offline
  python -m localkaggle export digits data/digits
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m localkaggle",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="serve|export")
    serving = commands.add_parser("serve", help="run a server on 127.0.0.1 until Ctrl-C")
    serving.set_defaults(command=_serve, parser=serving)
    add = serving.add_argument
    text = "port to use (default: the port last used with --folder, otherwise any free port)"
    add("--port", type=int, help=text)
    text = "folder for the server's state, to resume from later (default: a temporary folder)"
    add("--folder", type=Path, help=text)
    add("--offline", action="store_true", help="do not give sessions internet access")
    text = "reproduce the behavior recorded by `invoke doctor --live` in FILE"
    add("--facts", type=Path, metavar="FILE", help=text)
    text = "publish the files in DIR as another user's dataset; can be repeated"
    add("--dataset", action="append", default=[], metavar="OWNER/SLUG=DIR", help=text)
    text = "publish the files in DIR as the model version NAME; can be repeated"
    add("--model", action="append", default=[], metavar="NAME=DIR", help=text)
    export = commands.add_parser("export", help="write a competition's files as Kaggle mounts them")
    export.set_defaults(command=_export)
    export.add_argument("competition", choices=competitions.NAMES)
    export.add_argument("folder", type=Path, help="path to a new or empty folder")
    options = parser.parse_args(arguments)
    return int(options.command(options))


def _serve(options: argparse.Namespace) -> int:
    try:
        more = facts.read(options.facts) if options.facts else {}
        more["datasets"] = protocol.published("dataset", options.dataset)
        more["models"] = protocol.published("model", options.model)
    except ValueError as error:
        options.parser.error(str(error))
    if not 0 <= (options.port or 0) <= 65535:
        options.parser.error("--port: expected a number from 0 (any free port) to 65535")
    more |= {"port": options.port, "offline": options.offline}
    return serve(options.folder, "python -m localkaggle serve", **more)


def serve(folder: Path | None, command: str, **more: Any) -> int:
    """Run a server until it receives SIGINT or SIGTERM, and return an exit code.

    This prints environment variables that the user can paste into another shell. `command` is what
    the user ran, without the options --folder and --port.
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
            in_use = error.errno == errno.EADDRINUSE
            free = f" --folder {shlex.quote(str(place))} --port 0" if in_use else ""
            text = f"cannot start the server: {error}; expected a free port and a writable folder"
            return _refused(2 if in_use else 8, text, command + free)
        hosted = f"the competitions {', '.join(kaggle.competitions)}"
        print(f"# Serving {hosted} on 127.0.0.1:{kaggle.port}. The files are in {place}")
        if not namespaces():
            print(f"# {NO_NAMESPACES}.")
        print("# Paste these lines into another shell, then use kaggle or invoke there.")
        print("# API tokens are unset because they would override the key below.")
        print("unset KAGGLE_API_TOKEN KAGGLE_API_V1_TOKEN")
        for name, value in kaggle.environment.items():
            print(f"export {name}={shlex.quote(value)}")
        print("# Press Ctrl-C to stop the server.", flush=True)
        stop.wait()
    print("# Stopped the server and all its sessions.")
    return 0


def _export(options: argparse.Namespace) -> int:
    name, folder = options.competition, options.folder
    again = f"python -m localkaggle export {name} {_beside(folder)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            return _refused(2, f"{folder} is not empty; expected a new or empty folder", again)
        competitions.EMBEDDED[name]().write(folder)
    except OSError as error:
        text = f"cannot write {folder}: {error.strerror}; expected a writable disk with free space"
        return _refused(8, text, again)
    print(f"Wrote the competition {name} to {folder}")
    return 0


def _beside(folder: Path) -> str:
    place = folder.resolve()
    return shlex.quote(str(place.with_name(f"{place.name}-2")))


def _refused(code: int, text: str, command: str) -> int:
    print(f"Error: {text}.\n{command}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
