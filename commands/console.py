"""What all tasks share: options, deadline, output and exit codes.

Nothing heavy is imported before a task runs, so that `invoke --list` is instant.
"""

import atexit
import copy
import difflib
import functools
import inspect
import keyword
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from invoke import tasks
from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from deploy import deadline, secrets
from deploy.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
USAGE, DEADLINE, CTRL_C = 2, 5, 130  # exit codes
BEGIN = ("start", "init")  # tasks whose plain word is a competition
TWO_WEEKS = 60 * 24 * 14  # minutes
COMMAND = re.compile(r"(?:^|(?<=: ))invoke ([a-z-]+)(?: [^\s`]+)*$", re.MULTILINE)
NOTHING_LOST = "Nothing is lost: run the same command again, or check first:\ninvoke status"
Result = dict[str, Any]
# The help of options that several tasks have; a task may replace it.
HELP = {
    "config": "name in pipeline/configs/, or path of a .py file; default: the one that init chose,"
    " or digits",
    "json": "print the result as a JSON object on the last line",
    "run": "owner/slug/version, such as ann/digits-train-tpu/3; default: the last one pushed from"
    " here",
    "kernel": "train-tpu (default), infer-gpu, prepare-cpu or bench",
    "yes": "push without asking; for scripts",
    "for_": "accelerator: tpu-v5e-8, or gpu-t4x2 (two T4); default: the one in kernels/train-tpu/"
    "kernel-metadata.json",
    "again": "push even if the same notebook was pushed before and has not failed, or if Kaggle"
    " reports as many active runs as it allows",
    "fresh": "start over, without what earlier sessions saved; leave it out to resume later",
    "now": "submit at once, without waiting until five minutes after the pull",
    "ensemble": "an ensemble.json; use its members in place of the last training's model",
}
Body = Callable[..., Result | None]  # the function of a task


class _Task(tasks.Task[Any]):
    """A task of invoke. --config is also -c; no other option has a short name.

    invoke would assign them: -c would be --config in one task and --competition in another.
    """

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        """Return the arguments of an option."""
        made = super().arg_opts(name, default, taken_names)
        return made | ({"names": ["config", "c"]} if name == "config" else {})


_with_config: set[str] = set()  # the tasks that act on a config; `init` is not one of them


def task(
    limit: float = 0,
    *,
    advice: str = NOTHING_LOST,
    name: str = "",
    options: Mapping[str, str] | None = None,
    iterable: tuple[str, ...] = (),
    **help_: str,
) -> Callable[[Body], Any]:
    """Turn a function into a task of invoke, with --json. An error is printed as its message,
    without a traceback, and sets the exit code.

    Args:
        limit: minutes until the task is stopped, the default of --minutes; 0: never.
        advice: what to do after it was stopped.
        name: of the task; default: that of the function.
        options: {name: help} of more text options, which the function takes as **texts.
        iterable: options that may be repeated.
        help_: the help of options that `HELP` lacks; `minutes=""` leaves out --minutes.
    """

    def decorate(body: Body) -> Any:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = [each for each in inspect.signature(body).parameters.values() if each.kind is kind]
        called = name or body.__name__.replace("_", "-")
        if {"config", "competition"} & {each.name for each in own} == {"config"}:
            _with_config.add(called)
        texts = {  # a parameter cannot be named `for`
            f"{option}{'_' * keyword.iskeyword(option)}": words
            for option, words in (options or {}).items()
        }
        default = "two weeks" if limit == TWO_WEEKS else f"{limit:g}"
        timeout = f"timeout in minutes (default {default}); rerun to resume"
        about = {**HELP, **texts, "minutes": timeout, **help_}
        more: Result = {**dict.fromkeys(texts, ""), "json": False}
        if limit and about["minutes"]:
            more["minutes"] = ""
        first = inspect.Parameter("c", kind, annotation=Context)
        added = [inspect.Parameter(option, kind, default=value) for option, value in more.items()]

        @functools.wraps(body)
        def run(c: Context, **given: Any) -> None:
            reported(functools.partial(_limited, body, limit, advice), given)

        run.__signature__ = inspect.Signature([first, *own, *added])  # type: ignore[attr-defined]
        return tasks.task(
            klass=_Task,
            auto_shortflags=False,
            name=called,
            iterable=list(iterable),
            help={each.name: about[each.name] for each in [*own, *added]},
        )(run)

    return decorate


def _limited(body: Body, limit: float, advice: str, options: Result) -> Result | None:
    """Run the function of a task, until its deadline."""
    if not limit:
        return body(**options)
    allowed = number("minutes", options.pop("minutes", "") or str(limit), 0.01, TWO_WEEKS)
    with deadline.limit(allowed * 60, f"This took longer than {allowed:g} minutes. {advice}"):
        return body(**options)


def reported(body: Callable[[Result], Result | None], options: Result) -> None:
    """Print the result or the error of a task, and set the exit code."""
    as_json = options.pop("json", False) or options.get("json_lines", False)
    try:  # around the imports too, for Ctrl-C during one
        secrets.guard_tracebacks()
        if options.get("config") == "" and "competition" not in options:
            from deploy import init

            # The one that `invoke init` chose, unless --run names a run of another one.
            pushed_by = init.config_of(ROOT, options.get("run", ""))
            options["config"] = pushed_by or init.default_config(ROOT)
        result = body(options)
        if as_json:
            show_json(result)
    except BrokenPipeError:  # the reader, such as `| head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(130)
    except KeyboardInterrupt:
        code, message = CTRL_C, "Interrupted. Runs on Kaggle continue:\ninvoke status"
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or (ROOT / package).exists():
            raise  # a bug of this project
        code, message = USAGE, (
            f"{sys.executable} has no package {package!r}; expected the packages in pyproject.toml."
            "\nActivate another environment, or install them:\n"
            f"{shlex.quote(sys.executable)} -m pip install -e {shlex.quote(str(ROOT))}"
        )  # fmt: skip
    except Exception as error:
        known = getattr(error, "exit_code", None)
        if not isinstance(known, int):
            raise  # a bug of this project: the traceback helps
        code, message = known, str(error)
    else:
        if result and result.get("exit_code"):
            sys.exit(result["exit_code"])  # neither an error nor a success
        return
    _end(code, about(options.get("config", ""), message), as_json=as_json)


def _leave(code: int) -> None:
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _end(code: int, message: str, *, as_json: bool) -> NoReturn:
    """Print a message without secrets, and end the process with a code."""
    if code in (DEADLINE, CTRL_C):
        # Registered last, so called first: the clean-up of a library may wait for a lost lock.
        atexit.register(_leave, code)
    message = secrets.redact(message)
    with suppress(BrokenPipeError):
        print(message, file=sys.stderr, flush=True)
        if as_json:
            show_json({"error": message, "exit_code": code})
    sys.exit(code)


def about(config: str, message: str) -> str:
    """Add --config to the commands in a message, which would use the default config without it.

    A command ends a line, alone or after a colon. Most errors are raised where the config is not
    known.

    >>> _with_config.add("status")
    >>> print(about("leaves", "Nothing was pushed.\\ninvoke status"))
    Nothing was pushed.
    invoke status --config leaves
    """

    def complete(found: re.Match[str]) -> str:
        named = found[1] not in _with_config or "--config" in found[0]
        # Alone it rehearses an embedded competition; another config needs --input, too.
        named |= found[0].endswith("invoke dry-run")
        return found[0] if named else f"{found[0]} --config {shlex.quote(config)}"

    return COMMAND.sub(complete, message) if config else message


def read_words(collection: Collection) -> None:
    """Read plain words after a task as its competition, config or runs, and end with exit code 2
    and a message if a word or an option is unknown.

    invoke would end with 1. It also accepts its own options after a task, most without effect: a
    task without --config would ignore one. Here only --help is accepted there.
    """
    from invoke.main import program

    core = vars(program).get("core")  # the command line, if invoke has read it
    if core is None or not core.unparsed:
        return
    # From a copy, since this removes the help of the tasks.
    words, contexts = core.unparsed, copy.deepcopy(collection).to_contexts()
    asked = ParserContext(args=[Argument(names=("help", "h"), optional=True)])
    while True:
        try:
            if (given := core[0].args["config"].value) is not None:
                raise ParseError(
                    f"--config {given} stands before the task; expected it after the task's name."
                )
            Parser(initial=asked, contexts=contexts).parse_argv(list(words))
            return
        except ParseError as error:
            unknown = re.fullmatch(r"No idea what '(.*)' is!", str(error))
            word = unknown[1] if unknown else ""
            if not (option := _option_of(word, error.context)):
                said = _in_words(error, word, [each.name or "" for each in contexts])
                _end(USAGE, said, as_json="--json" in words)
            flags = error.context.flags if error.context else {}
            plain = (  # `invoke runs 1 1`: the first one that is not the value of an option
                at
                for at, one in enumerate(words)
                if one == word and not (words[at - 1] in flags and flags[words[at - 1]].takes_value)
            )
            words.insert(next(plain), option)


def _option_of(word: str, context: ParserContext | None) -> str:
    """Return the option to which a plain word after a task belongs, or "".

    The word is a run, the competition of a task that begins one, or a config.
    """
    from pipeline.config import config_files

    if context is None or not context.name or word[:1] in ("", "-"):
        return ""
    if "--run" in context.flags and context.args["run"].kind is list:
        return "--run"
    option = "competition" if context.name in BEGIN else "config"
    known = context.name in BEGIN or word in config_files.named_files() or word.endswith(".py")
    free = option in context.args and context.args[option].raw_value is None
    return f"--{option}" if known and free else ""


def _in_words(error: ParseError, word: str, names: list[str]) -> str:
    """Return what was wrong, and a suggestion.

    Args:
        error: of the parser.
        word: the unknown word, or "".
        names: the names of all tasks.
    """
    context = error.context
    name = context.name if context is not None and context.name else ""
    if lacks := re.match(r"Flag <Argument: ([\w-]+).*> needed value", str(error)):
        return f"--{lacks[1]} has no value; expected one.\nTo see which:\ninvoke {name} --help"
    if context is None or not word:
        return str(error)
    said = f"{name} does not take {word!r}." if name else f"There is no task {word!r}."
    known = list(context.flags) if name else names
    alike = difflib.get_close_matches(word.partition("=")[0], known, n=1)
    said += f" Did you mean {alike[0]}?" if alike else ""
    kinds, command = ("options", f"{name} --help") if name else ("tasks", "--list")
    return f"{said}\nTo see all {kinds}:\ninvoke {command}"


def new_folder(task: str) -> Path:
    """Return the path of a new folder in runs/ for the output of a task."""
    return ROOT / "runs" / f"{task}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def show(line: str) -> None:
    """Print a line without secrets, and flush."""
    print(secrets.redact(line), flush=True)


def show_json(value: Result | None) -> None:
    """Print a value as one line of JSON without secrets, and flush."""
    print(secrets.to_json(value), flush=True)


def number(option: str, text: str, least: float, most: float) -> float:
    """Return the number of an option; raise `UsageError` unless it is from `least` to `most`."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(
            f"--{option} {text[:40]}: expected a number from {least:.3g} to {most:g}.\nCorrect it."
        )
    return value


def agreement(yes: bool) -> Callable[[str], bool]:
    """Return a function that asks a person a question; with `yes` it agrees without asking.

    A task that spends something calls this first, so that it fails before any work.

    Raises:
        CredentialError: if nobody is logged in.
        UsageError: if there is no terminal to ask.
    """
    from deploy import auth

    auth.require()
    if yes:
        return lambda question: True
    if sys.stdin.closed or not sys.stdin.isatty():
        raise UsageError(
            "There is no terminal to ask before anything is spent; expected one, or the answer as"
            " an option.\nAdd --yes."
        )

    def agreed(question: str) -> bool:
        try:
            return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:  # Ctrl-D
            return False

    return agreed
