"""python -m localkaggle serve|export: a Kaggle on this machine for any Kaggle client, and its
competitions as folders.
"""

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from localkaggle import competitions

EXAMPLES = """examples:
  python -m localkaggle serve
  python -m localkaggle export digits data/digits
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code (docs/design.md)."""
    parser = argparse.ArgumentParser(
        "python -m localkaggle",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="serve|export")
    serve = commands.add_parser(
        "serve", help="serve until Ctrl-C", description="Serve on 127.0.0.1 until Ctrl-C."
    )
    serve.set_defaults(command=_serve)
    serve.add_argument("--port", type=_port, default=0, help="default: a free one")
    serve.add_argument(
        "--folder",
        type=Path,
        help="where to keep everything; default: a temporary folder, removed at the end",
    )
    serve.add_argument(
        "--offline",
        action="store_true",
        help="no session gets the internet, not even those that ask for it",
    )
    serve.add_argument(
        "--layout",
        choices=("2026", "flat"),
        default="2026",
        help="of /kaggle/input: competitions/SLUG (2026, the default), or SLUG as it was before (flat)",
    )
    serve.add_argument(
        "--session-seconds",
        type=_seconds,
        help="kill a session after this many; default: Kaggle's own 9 hours for a TPU, 12 for others",
    )
    serve.add_argument(
        "--dataset",
        type=_placed,
        action="append",
        default=[],
        metavar="OWNER/SLUG=DIR",
        help="a dataset that others published: its files lie in DIR, and sessions find them; again for another",
    )
    export = commands.add_parser(
        "export",
        help="write a competition as Kaggle would mount it",
        description="Write an embedded competition's folder.",
    )
    export.set_defaults(command=_export)
    export.add_argument("competition", help=f"one of: {', '.join(competitions.NAMES)}")
    export.add_argument("folder", type=Path, help="empty, or not there yet")
    options = parser.parse_args(arguments)
    return int(options.command(options))


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is no port: expected 0 (a free one) to 65535")
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 12 * 3600:
        raise argparse.ArgumentTypeError(
            f"{text} is no length of a session: expected 1 to 43200 seconds"
        )
    return seconds


def _placed(text: str) -> tuple[str, Path]:
    from localkaggle.services.datasets import placed

    try:
        return placed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _serve(options: argparse.Namespace) -> int:
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    folder = (
        options.folder
        if options.folder is not None
        else Path(tempfile.mkdtemp(prefix="localkaggle-"))
    )
    try:
        return _serve_in(folder, options, stop)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve_in(folder: Path, options: argparse.Namespace, stop: threading.Event) -> int:
    from localkaggle.server import SESSION_SECONDS, LocalKaggle
    from localkaggle.sessions.session import namespaces

    try:
        kaggle = LocalKaggle(
            folder,
            port=options.port,
            offline=options.offline,
            layout=options.layout,
            datasets=dict(options.dataset),
            session_seconds=dict.fromkeys(SESSION_SECONDS, options.session_seconds)
            if options.session_seconds
            else None,
        )
    except FileExistsError as error:
        print(f"Error: {error}.\nChoose another --folder.", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"Error: could not serve: {error}.\nExpected a free port and a folder to write. Correct --port or --folder.",
            file=sys.stderr,
        )
        return 8 if options.port == 0 else 2
    with kaggle:
        print(
            f"# A Kaggle on 127.0.0.1:{kaggle.port}, competitions: {', '.join(kaggle.competitions)}; its files are in {folder}"
        )
        if not namespaces():
            print(
                "# Namespaces are not permitted here: paths are remapped, and the internet cannot be switched off."
            )
        print("# Paste this into another shell, and use kaggle or invoke there:")
        print(
            "unset KAGGLE_API_TOKEN KAGGLE_API_V1_TOKEN  # a token of your own would win over the key below"
        )
        for name, value in kaggle.environment.items():
            print(f"export {name}={shlex.quote(value)}")
        print("# Ctrl-C ends it.", flush=True)
        stop.wait()
    print("# Ended, with all of its sessions.")
    return 0


def _export(options: argparse.Namespace) -> int:
    if options.competition not in competitions.NAMES:
        print(
            f"Error: there is no competition {options.competition!r} here; expected one of: {', '.join(competitions.NAMES)}.\nCorrect the name.",
            file=sys.stderr,
        )
        return 2
    try:
        if options.folder.exists() and (
            not options.folder.is_dir() or any(options.folder.iterdir())
        ):
            print(
                f"Error: {options.folder} is not an empty folder; expected one, or a new name.\nChoose another.",
                file=sys.stderr,
            )
            return 2
        competitions.EMBEDDED[options.competition]().write(options.folder)
    except OSError as error:
        print(
            f"Error: could not write {options.folder}: {error.strerror}.\nFree some space, or choose another folder.",
            file=sys.stderr,
        )
        return 8
    print(f"Wrote the competition {options.competition} to {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
