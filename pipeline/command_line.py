"""What `python -m pipeline` and `python -m workbench` share: parsers, messages and exit codes."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from formats.errors import KnownError
from pipeline.errors import ConfigError
from pipeline.runtime import processes
from pipeline.train import progress_log

Command = Callable[[argparse.Namespace], dict[str, Any]]
FOLDER = "the competition folder, as Kaggle mounts it"


class Commands:
    """The parsers of a program's commands.

    Args:
        program: as a user types it.
        about: what it does.
        examples: a line for each command, which its help repeats.

    Attributes:
        common: options of every command.
        config: those of a command that reads a config.
        run: those of one that reads a competition's folder, too, and writes.
    """

    def __init__(self, program: str, about: str, examples: str) -> None:
        lines = [line.strip() for line in examples.splitlines()]
        self._examples = {name: line for line in lines for name in line.split()[3:4]}
        self.common = argparse.ArgumentParser(add_help=False)
        self.common.add_argument(
            "--json", action="store_true", help="end with one JSON object on the last line"
        )
        self.config = argparse.ArgumentParser(add_help=False, parents=[self.common])
        file = "a name in pipeline/configs/, or the path of a .py file of the same form"
        self.config.add_argument("--config", required=True, action="append", help=file)
        self.run = argparse.ArgumentParser(add_help=False, parents=[self.config])
        self.run.add_argument("--input", required=True, type=Path, help=FOLDER)
        self.run.add_argument("--output", required=True, type=Path, help="where to write")
        self._parser = argparse.ArgumentParser(
            program,
            description=about,
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._commands = self._parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        self, name: str, command: Command, summary: str, parent: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        """Add a command and return its parser; `parent` has the options that it shares."""
        added = self._commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"example:\n  {self._examples[name]}",
            parents=[parent],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(command=command)
        return added

    def main(
        self,
        arguments: list[str] | None,
        resuming: Collection[Command],
        several: Collection[Command] = (),
    ) -> int:
        """Run the command that is asked for and return its exit code (docs/dev/design.md).

        Args:
            arguments: by default those of the process.
            resuming: the commands that resume when they are called again.
            several: those that take several configs, as a list.
        """
        options = self._parser.parse_args(arguments)
        if options.command not in several and "config" in options:
            if isinstance(options.config, list) and len(options.config) > 1:
                self._parser.error(
                    f"--config {', '.join(options.config)}: expected one. Give it once."
                )
            (options.config,) = options.config
        try:
            result = options.command(options)
        except KnownError as error:
            return _fail(f"Error: {error}", error.exit_code, options)
        except KeyboardInterrupt:
            resumes = options.command in resuming
            more = "resumes from what was saved" if resumes else "begins again"
            return _fail(f"Interrupted. The same command {more}.", 130, options)
        if options.json:
            print(json.dumps(result))
        return int(result.get("exit_code", 0))


def _fail(message: str, code: int, options: argparse.Namespace) -> int:
    print(message, file=sys.stderr)
    if options.json:
        print(json.dumps({"error": message.removeprefix("Error: "), "exit_code": code}))
    processes.leave(code)
    return code


def refuse_missing(option: str, folder: Path, advice: str) -> None:
    """Raise `ConfigError` unless there is such a folder."""
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        problem = "is a file" if os.path.lexists(folder) else "there is no such folder"
        raise ConfigError(f"{option} {folder}: {problem}. {advice}")


def refuse_missing_input(folder: Path) -> None:
    """Raise `ConfigError` unless there is such a competition folder."""
    refuse_missing(
        "--input",
        folder,
        "Expected a competition folder.\n"
        "Correct the path, or make an embedded competition's:\n"
        "python -m localkaggle export digits DIR",
    )


def show(line: str) -> None:
    """Print a line at once: progress in words on a terminal, as JSON into a pipe."""
    print(progress_log.readable(line) if sys.stdout.isatty() else line, flush=True)
