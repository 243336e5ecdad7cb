"""Parse and run the commands of `python -m pipeline` and `python -m workbench`."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from formats.errors import KnownError
from pipeline.errors import ConfigError
from pipeline.runtime import processes
from pipeline.train import progress_log

Command = Callable[[argparse.Namespace], dict[str, Any]]


class Once(argparse.Action):
    """An option that can only be passed once. By default, argparse uses the last value."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option: Any = None) -> None:
        if first := getattr(namespace, self.dest):
            parser.error(f"{option} was given twice ({first}, {value}). Pass it once.")
        setattr(namespace, self.dest, value)


FOLDER = "competition folder, as mounted by Kaggle"
CONFIG = "name of a config in pipeline/configs/, or path to a .py file with the same layout"
# Options shared by several commands.
OPTIONS: dict[str, dict[str, Any]] = {
    "--config": {"required": True, "action": Once, "help": CONFIG},
    "--input": {"required": True, "type": Path, "help": FOLDER},
    "--output": {"required": True, "type": Path, "help": "path to write to"},
    "--json": {"action": "store_true", "help": "print a JSON object as the last line"},
}


class Commands:
    """The commands of a program.

    `examples` contains one example per line. Each is also shown in the help of its command.
    """

    def __init__(self, program: str, about: str, examples: str) -> None:
        self._examples = {line.split()[3]: line for line in examples.splitlines()}
        self._raw: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
        self._parser = argparse.ArgumentParser(
            program, description=about, epilog=f"examples:\n{examples}", **self._raw
        )
        self._commands = self._parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        self, name: str, command: Command, *options: str, resumes: bool = False
    ) -> argparse.ArgumentParser:
        """Add a command and return its parser.

        Args:
            command: function to call, whose docstring is the help text.
            options: keys of `OPTIONS`; --json is always added.
        """
        about, example = command.__doc__, f"example:\n{self._examples[name]}"
        added = self._commands.add_parser(
            name, help=about, description=about, epilog=example, **self._raw
        )
        for option in (*options, "--json"):
            added.add_argument(option, **OPTIONS[option])
        added.set_defaults(command=command, resumes=resumes)
        return added

    def main(self, arguments: list[str] | None) -> int:
        """Run a command and return its exit code (listed in docs/dev/design.md)."""
        options = self._parser.parse_args(arguments)
        try:
            result = options.command(options)
        except KnownError as error:
            message, code = f"Error: {error}", error.exit_code
        except KeyboardInterrupt:
            more = "resume" if options.resumes else "start over"
            message, code = f"Interrupted. Run the same command again to {more}.", 130
        else:
            if options.json:
                print(json.dumps(result))
            return int(result.get("exit_code", 0))
        print(message, file=sys.stderr)
        if options.json:
            print(json.dumps({"error": message.removeprefix("Error: "), "exit_code": code}))
        processes.leave(code)
        return code


def refuse_missing(option: str, folder: Path, advice: str) -> None:
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        problem = "is a file" if os.path.lexists(folder) else "there is no such folder"
        raise ConfigError(f"{option} {folder}: {problem}. {advice}")


def refuse_missing_input(folder: Path) -> None:
    advice = "Expected a competition folder.\nCorrect the path, or export a bundled competition:\n"
    refuse_missing("--input", folder, f"{advice}python -m localkaggle export digits DIR")


def show(line: str) -> None:
    """Print a line and flush. Progress lines are text on a terminal, and JSON otherwise."""
    print(progress_log.readable(line) if sys.stdout.isatty() else line, flush=True)
