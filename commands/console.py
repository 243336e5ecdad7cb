"""What the commands print, ask and exit with; secrets are hidden in all of it.

Nothing heavy is imported before a command runs, so that `invoke --list` is instant.
"""

import atexit
import difflib
import functools
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from invoke import tasks
from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

ROOT = Path(__file__).resolve().parents[1]
USAGE, DEADLINE, CTRL_C = 2, 5, 130  # exit codes
TWO_WEEKS = 60 * 24 * 14  # minutes
Show = Callable[[str], None]
COMMAND = re.compile(r"(?:^|(?<=: ))invoke ([a-z-]+)(?: [^\s`]+)*$", re.MULTILINE)
NOTHING_LOST = "Nothing is lost: run the same command again, or look first:\ninvoke status"


class _Task(tasks.Task[Any]):
    """A task of invoke. Its --config is also -c; no other option has a short name.

    invoke would choose them: -c would be --config in one task and --competition in the next.
    """

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return its options, as often as it is asked: invoke takes each help away as it reads."""
        about = dict(self.help)
        found = super().get_arguments(ignore_unknown_help)
        self.help = about
        for argument in found:
            if argument.name == "config":
                argument.names = ("config", "c")
        return found


def task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function a task of invoke."""
    made: Callable[[Callable[..., Any]], Any] = tasks.task(
        klass=_Task, auto_shortflags=False, **options
    )

    def decorate(body: Callable[..., Any]) -> Any:
        if {"config", "competition"} & set(inspect.signature(body).parameters) == {"config"}:
            _with_config.add(options.get("name") or body.__name__.replace("_", "-"))
        return made(body)

    return decorate


_with_config: set[str] = set()  # the tasks that act on a config; `init` chooses one


def about(config: str, message: str) -> str:
    """Return a message whose commands are about this config, and not about the default one.

    A command stands at a line's end, alone or behind a colon. Most errors are raised where nobody
    knows the config.

    >>> _with_config.add("status")
    >>> print(about("leaves", "Nothing was pushed.\\ninvoke status"))
    Nothing was pushed.
    invoke status --config leaves
    """

    def complete(found: re.Match[str]) -> str:
        named = found[1] not in _with_config or "--config" in found[0]
        # Alone it rehearses an embedded competition; another config needs the --input of a folder.
        named |= found[0].endswith("invoke dry-run")
        return found[0] if named else f"{found[0]} --config {shlex.quote(config)}"

    return COMMAND.sub(complete, message) if config else message


def refuse_unknown(module: ModuleType) -> None:
    """End with exit code 2 and a message if invoke was given what its tasks do not take.

    invoke itself ends with 1 then. And it takes its own options behind a task too, where most have
    no effect: a task without --config would run as if it had not been given. Here --help alone
    is taken there.

    Args:
        module: the tasks.
    """
    from invoke.main import program

    core = vars(program).get("core")  # what it was given, once it has read it
    if core is None or not core.unparsed:
        return
    contexts = Collection.from_module(module).to_contexts()
    asked = ParserContext(args=[Argument(names=("help", "h"), optional=True)])
    try:
        if core[0].args["config"].value is not None:
            given = core[0].args["config"].value
            raise ParseError(f"--config {given} stands before the task; expected behind its name.")
        Parser(initial=asked, contexts=contexts).parse_argv(core.unparsed)
    except ParseError as error:
        from deploy import secrets

        message = secrets.redact(_in_words(error, {each.name or "": each for each in contexts}))
        print(message, file=sys.stderr, flush=True)
        if "--json" in core.unparsed:
            print(secrets.to_json({"error": message, "exit_code": USAGE}), flush=True)
        sys.exit(USAGE)


def _in_words(error: ParseError, contexts: Mapping[str, ParserContext]) -> str:
    """Return what was wrong and what may have been meant.

    Args:
        contexts: of all tasks, by name.
    """
    from pipeline.config import config_files

    said, context = str(error), error.context
    name = context.name if context is not None and context.name else ""
    lacks = re.match(r"Flag <Argument: ([\w-]+).*> needed value", said)
    if lacks:
        return f"--{lacks[1]} has no value; expected one.\nTo see which:\ninvoke {name} --help"
    unknown = re.fullmatch(r"No idea what '(.*)' is!", said)
    if unknown is None or context is None:
        return said
    given = unknown[1]
    if not name:
        said, known, help_ = f"There is no task {given!r}.", list(contexts), "invoke --list"
    else:
        known, help_ = list(context.flags), f"invoke {name} --help"
        said = f"{name} has no option {given}."
        if not given.startswith("-"):
            said = f"{name} does not take {given!r}: each value stands behind its option."
            named = given in config_files.named_files() or given.endswith(".py")
            if named and "--config" in context.flags:
                return f"{said}\nDid you mean --config {given}?"
    alike = difflib.get_close_matches(given.partition("=")[0], known, n=1)
    said += f" Did you mean {alike[0]}?" if alike else ""
    return f"{said}\nTo see what there is:\n{help_}"


_exit_codes: list[int] = []  # one, if a task was interrupted


@atexit.register  # registered first, so called last
def _exit_early() -> None:
    """Exit before Python restores the signal handlers.

    The timer of `deadline.end_soon` would then kill the process (exit code 142).
    """
    if _exit_codes:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(_exit_codes[-1])


def reported(body: Callable[..., dict[str, Any] | None]) -> Callable[..., None]:
    """Print a task's result, and an error as its message and exit code, without a traceback."""

    @functools.wraps(body)
    def run(*arguments: Any, **options: Any) -> None:
        as_stream = options.get("json_lines", False)
        as_json = as_stream or options.get("json", False)
        try:  # around the imports too: Ctrl-C during one ends with a message
            from deploy import secrets

            secrets.guard_tracebacks()
            if options.get("config") == "" and "competition" not in options:
                from deploy import init

                # What `invoke init` chose, unless the run that is named is of another one.
                pushed_by = init.config_of(ROOT, options.get("run", ""))
                options["config"] = pushed_by or init.default_config(ROOT)
            with shown_by(_as_json) if as_stream else nullcontext():
                result = body(*arguments, **options)
            if as_json:
                print(secrets.to_json(result), flush=True)
        except BrokenPipeError:  # the reader, as `| head`, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(130)
        except KeyboardInterrupt:
            code, message = CTRL_C, "Interrupted. Runs on Kaggle continue:\ninvoke status"
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if not package or (ROOT / package).exists():
                raise  # a bug of this project
            code, message = USAGE, lacking(package)
        except Exception as error:
            known = getattr(error, "exit_code", None)
            if not isinstance(known, int):
                raise  # a bug of this project: the traceback helps
            code, message = known, secrets.redact(str(error))
        else:
            if result and result.get("exit_code"):
                sys.exit(result["exit_code"])  # measured and missed: no error, and no success
            return
        message = about(options.get("config", ""), message)
        if code in (DEADLINE, CTRL_C):
            from deploy import deadline

            _exit_codes.append(code)
            atexit.register(deadline.end_soon, code)
        with suppress(BrokenPipeError):
            print(message, file=sys.stderr, flush=True)
            if as_json:
                from deploy import secrets

                print(secrets.to_json({"error": message, "exit_code": code}), flush=True)
        sys.exit(code)

    return run


def lacking(package: str) -> str:
    """Return the message for a package that this Python does not have."""
    python = shlex.quote(sys.executable)
    return (
        f"The Python at {sys.executable} has no package {package!r}; expected those that"
        f" pyproject.toml lists.\nActivate the environment that has them, or install them:\n"
        f"{python} -m pip install -e {shlex.quote(str(ROOT))}"
    )


def limited(
    minutes: float,
    *,
    advice: str | Callable[[dict[str, Any]], str] = NOTHING_LOST,
    **longer: float | Callable[[Any], float],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a task a timeout, which `--minutes` overrides.

    Args:
        minutes: the default.
        advice: what to do after the timeout, or a function of the options that says it.
        longer: the default with that option, as until_done=20160, or a function of its value.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(body)
        def run(*arguments: Any, **options: Any) -> Any:
            from deploy.deadline import within

            defaults = (
                most(value) if callable(most) else most
                for option, most in longer.items()
                if (value := options.get(option))
            )
            default = str(next(defaults, minutes))
            allowed = number("minutes", options.get("minutes") or default, 0.01, TWO_WEEKS)
            then = advice(options) if callable(advice) else advice
            with within(allowed * 60, f"This took longer than {allowed:g} minutes. {then}"):
                return body(*arguments, **options)

        return run

    return decorate


_shown_by: list[Show] = []  # what is given the lines in place of `show`; the last one counts


def show(line: str) -> None:
    """Show a line: print it at once, unless something else shows the lines."""
    (_shown_by or [print_line])[-1](line)


def print_line(line: str) -> None:
    """Print a line as a pipe gets it: at once, without secrets, and not too often of progress."""
    from deploy import secrets
    from deploy.look import Line

    if isinstance(line, Line) and line.look.often:
        return
    print(secrets.redact(line), flush=True)


@contextmanager
def shown_by(other: Show) -> Iterator[None]:
    """Give all lines to another function in place of `show`."""
    _shown_by.append(other)
    try:
        yield
    finally:
        _shown_by.remove(other)


def terminal() -> bool:
    """Return whether a screen can be drawn: in no pipe, and not where lines are shown otherwise."""
    named = os.environ.get("TERM", "dumb")
    return not _shown_by and sys.stdout.isatty() and named not in ("dumb", "unknown")


def _as_json(line: str) -> None:
    """Print a line as one JSON object; that of a watch with what it knows of the run."""
    from deploy import secrets
    from deploy.look import Line

    value = line.look.to_json() if isinstance(line, Line) else {"line": line}
    print(secrets.to_json(value), flush=True)


def number(option: str, text: str, least: float, most: float) -> float:
    """Return an option's number; raise `UsageError` unless it is one from `least` to `most`."""
    from deploy.errors import UsageError

    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(
            f"--{option} {text[:40]}: expected a number from {least:.3g} to {most:g}.\nCorrect it."
        )
    return value


def interpreter(machine: str, path: str) -> str:
    """Return the absolute path of a Python; raise `UsageError` unless it can run notebooks."""
    import subprocess

    from deploy.errors import UsageError

    code = (
        "from importlib.util import find_spec as find;"
        " print([n for n in ('papermill', 'ipykernel') if not find(n)])"
    )
    try:
        command = [path, "-s", "-c", code]
        done = subprocess.run(  # noqa: S603 - the user's own
            command, capture_output=True, text=True, timeout=60, check=False
        )
        lacking = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        lacking = ""
    if lacking == "[]":
        return str(Path(path).absolute())
    option = f"--{machine.lower()}-python {path}"
    if lacking.startswith("["):
        raise UsageError(
            f"{option} has no {lacking.strip('[]')}; expected an environment that can run"
            f" notebooks.\n{shlex.quote(path)} -m pip install -e ."
            f" -c constraints/{machine.lower()}-image.txt"
        )
    raise UsageError(
        f"{option}: expected the interpreter of a Python environment.\n"
        "Give the path of an environment's bin/python, or leave the option out."
    )


def asking() -> Callable[[str], str] | None:
    """Return what asks a person a question; None without a terminal."""
    if sys.stdin.closed or not sys.stdin.isatty():
        return None

    def ask(question: str) -> str:
        try:
            return input(f"{question} ").strip()
        except EOFError:  # Ctrl-D
            return ""

    return ask


def agreement(yes: bool) -> Callable[[str], bool]:
    """Return what asks a person for a yes; with `yes` all is agreed to. It is the first that a task
    does that spends something: what is lacking here is told before a call, and before any work.

    Raises:
        CredentialError: if nobody is logged in.
        UsageError: if there is nobody to ask.
    """
    from deploy import credentials
    from deploy.errors import UsageError

    credentials.require()
    ask = (lambda question: "y") if yes else asking()
    if ask is None:
        raise UsageError(
            "There is no terminal to ask before anything is spent; expected one, or the answer.\n"
            "Add --yes."
        )
    return lambda question: ask(f"{question} [y/N]").lower() in ("y", "yes")


def confirmation(
    yes: bool, question: str = "Push it?", declined: str = "Nothing was pushed."
) -> Callable[[Any], None]:
    """Return what shows a preview and asks before anything is spent; with `yes` it only shows.

    Raises:
        CredentialError, UsageError: as `agreement`.
    """
    agreed = agreement(yes)

    def agree(preview: Any) -> None:
        from deploy.errors import Detached

        for line in preview.lines():
            show(line)
        if not agreed(question):
            raise Detached(declined)

    return agree
