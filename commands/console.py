"""What every task shares: its options, its deadline, how it prints, and how it ends.

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from invoke import tasks
from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

ROOT = Path(__file__).resolve().parents[1]
USAGE, DEADLINE, CTRL_C = 2, 5, 130  # exit codes
TWO_WEEKS = 60 * 24 * 14  # minutes
COMMAND = re.compile(r"(?:^|(?<=: ))invoke ([a-z-]+)(?: [^\s`]+)*$", re.MULTILINE)
NOTHING_LOST = "Nothing is lost: run the same command again, or look first:\ninvoke status"
Result = dict[str, Any]
# The help of the options that several tasks have; a task may say more.
HELP = {
    "config": "name in pipeline/configs/, or path of such a .py file; default: what init chose, or"
    " digits",
    "json": "print the result as one JSON object on the last line",
    "run": "owner/slug/version, as ann/digits-train-tpu/3; default: the last run pushed from here",
    "kernel": "train-tpu (default), infer-gpu, prepare-cpu or bench",
    "yes": "push without asking; for scripts",
    "for_": "what trains: tpu-v5e-8 or gpu-t4x2, the pair of T4; default: what kernels/train-tpu/"
    "kernel-metadata.json asks for",
    "again": "push even if this very notebook was pushed already and has not failed, or if Kaggle"
    " calls as many runs active as it allows",
    "fresh": "start over, whatever an earlier session saved; leave it out to resume later",
    "now": "submit at once: do not look whether Kaggle has the file among the run's outputs, and do"
    " not wait until five minutes after the pull",
    "ensemble": "an ensemble.json: its members, in place of the last training's model",
}


@dataclass(frozen=True)
class Limit:
    """When a task is stopped, unless --minutes says another time.

    Attributes:
        minutes: the default.
        longer: the default with that option, as until_done=20160, or a function of its value.
        advice: what to do after the timeout, or a function of the options that says it.
        help: of --minutes; "": the task has no such option.
    """

    minutes: float
    longer: Mapping[str, float | Callable[[Any], float]]
    advice: str | Callable[[Result], str] = NOTHING_LOST
    help: str = ""


def limit(minutes: float, more: str = "", **longer: float | Callable[[Any], float]) -> Limit:
    """Return a limit that --minutes changes.

    Args:
        minutes, longer: as in `Limit`.
        more: about the default, for the help.
    """
    about = f"timeout in minutes (default {minutes:g}{more}); rerun to resume"
    return Limit(minutes, longer, help=about)


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


_with_config: set[str] = set()  # the tasks that act on a config; `init` chooses one


def task(
    limited: Limit | None = None, *, name: str = "", iterable: tuple[str, ...] = (), **help_: str
) -> Callable[[Callable[..., Result | None]], Any]:
    """Make a function a task of invoke, which prints its result, or an error as its message and
    exit code, without a traceback. Each has --json; an option's help is in `HELP`, or given here.
    """

    def decorate(body: Callable[..., Result | None]) -> Any:
        own = list(inspect.signature(body).parameters.values())
        called = name or body.__name__.replace("_", "-")
        if {"config", "competition"} & {each.name for each in own} == {"config"}:
            _with_config.add(called)
        more = {"json": False, **({"minutes": ""} if limited and limited.help else {})}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        first = inspect.Parameter("c", kind, annotation=Context)
        added = [inspect.Parameter(option, kind, default=value) for option, value in more.items()]

        @functools.wraps(body)
        def run(c: Context, **options: Any) -> None:
            reported(functools.partial(_limited, body, limited), options)

        run.__signature__ = inspect.Signature([first, *own, *added])  # type: ignore[attr-defined]
        about = {**HELP, "minutes": limited.help if limited else "", **help_}
        return tasks.task(
            klass=_Task,
            auto_shortflags=False,
            name=called,
            iterable=list(iterable),
            help={each.name: about[each.name] for each in [*own, *added]},
        )(run)

    return decorate


def _limited(
    body: Callable[..., Result | None], limited: Limit | None, options: Result
) -> Result | None:
    """Run a task's body within its time."""
    from deploy import deadline

    if limited is None:
        return body(**options)
    given = options.pop("minutes", "")
    defaults = (
        most(value) if callable(most) else most
        for option, most in limited.longer.items()
        if (value := options.get(option))
    )
    default = str(next(defaults, limited.minutes))
    allowed = number("minutes", given or default, 0.01, TWO_WEEKS)
    then = limited.advice(options) if callable(limited.advice) else limited.advice
    with deadline.limit(allowed * 60, f"This took longer than {allowed:g} minutes. {then}"):
        return body(**options)


def reported(body: Callable[[Result], Result | None], options: Result) -> None:
    """Print what a task returns, or how it failed."""
    as_json = options.pop("json", False) or options.get("json_lines", False)
    try:  # around the imports too: Ctrl-C during one ends with a message
        from deploy import secrets

        secrets.guard_tracebacks()
        if options.get("config") == "" and "competition" not in options:
            from deploy import init

            # What `invoke init` chose, unless the run that is named is of another one.
            pushed_by = init.config_of(ROOT, options.get("run", ""))
            options["config"] = pushed_by or init.default_config(ROOT)
        result = body(options)
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
    _end(code, about(options.get("config", ""), message), as_json=as_json)


def _end(code: int, message: str, *, as_json: bool) -> None:
    """End the process with a message and a code."""
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


def read_words(module: ModuleType) -> None:
    """Take the word behind a task for its config, and end with exit code 2 and a message if invoke
    was given what its tasks do not take.

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
    while True:
        try:
            if core[0].args["config"].value is not None:
                given = core[0].args["config"].value
                raise ParseError(
                    f"--config {given} stands before the task; expected behind its name."
                )
            Parser(initial=asked, contexts=contexts).parse_argv(list(core.unparsed))
            return
        except ParseError as error:
            place = _config_word(error, core.unparsed)
            if place is None:
                _refuse(error, contexts, core.unparsed)
            else:
                core.unparsed.insert(place, "--config")


def _config_word(error: ParseError, words: list[str]) -> int | None:
    """Return the place of the word that nothing takes, if it names a config; else None."""
    from pipeline.config import config_files

    unknown = re.fullmatch(r"No idea what '(.*)' is!", str(error))
    context = error.context
    if unknown is None or context is None or not context.name or "--config" not in context.flags:
        return None
    word = unknown[1]
    named = word in config_files.named_files() or word.endswith(".py")
    return words.index(word) if named and context.args["config"].raw_value is None else None


def _refuse(error: ParseError, contexts: list[ParserContext], words: list[str]) -> None:
    from deploy import secrets

    message = secrets.redact(_in_words(error, {each.name or "": each for each in contexts}))
    print(message, file=sys.stderr, flush=True)
    if "--json" in words:
        print(secrets.to_json({"error": message, "exit_code": USAGE}), flush=True)
    sys.exit(USAGE)


def _in_words(error: ParseError, contexts: Mapping[str, ParserContext]) -> str:
    """Return what was wrong and what may have been meant.

    Args:
        contexts: of all tasks, by name.
    """
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
    alike = difflib.get_close_matches(given.partition("=")[0], known, n=1)
    said += f" Did you mean {alike[0]}?" if alike else ""
    return f"{said}\nTo see what there is:\n{help_}"


def lacking(package: str) -> str:
    """Return the message for a package that this Python does not have."""
    python = shlex.quote(sys.executable)
    return (
        f"The Python at {sys.executable} has no package {package!r}; expected those that"
        f" pyproject.toml lists.\nActivate the environment that has them, or install them:\n"
        f"{python} -m pip install -e {shlex.quote(str(ROOT))}"
    )


def show(line: str) -> None:
    """Print a line at once, without secrets."""
    from deploy import secrets

    print(secrets.redact(line), flush=True)


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
    from deploy import auth
    from deploy.errors import UsageError

    auth.require()
    ask = (lambda question: "y") if yes else asking()
    if ask is None:
        raise UsageError(
            "There is no terminal to ask before anything is spent; expected one, or the answer.\n"
            "Add --yes."
        )
    return lambda question: ask(f"{question} [y/N]").lower() in ("y", "yes")
