"""Parses options and handles deadlines, output and exit codes for all tasks.

Modules that are slow to import are imported when a task runs, so that `invoke --list` is fast.
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
BEGIN = ("start", "init")  # tasks whose positional argument is a competition
TWO_WEEKS = 60 * 24 * 14  # minutes
COMMAND = re.compile(r"(?:^|(?<=: ))invoke ([a-z-]+)(?: [^\s`]+)*$", re.MULTILINE)
NOTHING_LOST = (
    "No progress was lost. Run the same command again, or check the status first:\ninvoke status"
)
Result = dict[str, Any]
# Help texts for options shared by several tasks. A task can override them.
HELP = {
    "config": "name of a config in pipeline/configs/, or path to a .py file (default: the config"
    " chosen by init, otherwise digits)",
    "json": "print the result as a JSON object on the last line",
    "run": "the run, as owner/slug/version, such as ann/digits-train-tpu/3 (default: the last run"
    " pushed from this machine)",
    "kernel": "name of the kernel: train-tpu, infer-gpu, prepare-cpu or bench (default: train-tpu)",
    "yes": "push without asking for confirmation; for scripts",
    "for_": "accelerator: tpu-v5e-8, or gpu-t4x2 for two T4 GPUs (default: the one in kernels/"
    "train-tpu/kernel-metadata.json)",
    "again": "push even if the same notebook was already pushed and has not failed, or if Kaggle"
    " reports the maximum number of active runs",
    "fresh": "start over instead of resuming from earlier sessions; omit it to resume later",
    "now": "submit immediately instead of waiting until five minutes after the pull",
    "ensemble": "path to an ensemble.json, whose members replace the model of the last training"
    " run",
}
Body = Callable[..., Result | None]  # a task's function


class _Task(tasks.Task[Any]):
    """An invoke task whose only short option is -c, which stands for --config.

    By default, invoke chooses the short options, and could use -c for --competition.
    """

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        made = super().arg_opts(name, default, taken_names)
        return made | ({"names": ["config", "c"]} if name == "config" else {})


_with_config: set[str] = set()  # tasks that use an existing config, unlike `init`


def task(
    limit: float = 0,
    *,
    advice: str = NOTHING_LOST,
    name: str = "",
    options: Mapping[str, str] | None = None,
    iterable: tuple[str, ...] = (),
    **help_: str,
) -> Callable[[Body], Any]:
    """Turn a function into an invoke task with a --json option.

    If an error occurs, the task prints a message without a traceback and exits with an error code.

    Args:
        limit: default of --minutes, or 0 for no limit.
        advice: what the user can do if the task reaches its time limit.
        name: name of the task (default: the name of the function).
        options: additional text options as {name: help text}. The function receives them as
            keyword arguments.
        iterable: names of options that can be repeated.
        help_: help texts for options that are not in `HELP`. If `minutes` is "", the task has no
            --minutes option.
    """

    def decorate(body: Body) -> Any:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = [each for each in inspect.signature(body).parameters.values() if each.kind is kind]
        called = name or body.__name__.replace("_", "-")
        if {"config", "competition"} & {each.name for each in own} == {"config"}:
            _with_config.add(called)
        texts = {  # a parameter cannot be called `for`
            f"{option}{'_' * keyword.iskeyword(option)}": words
            for option, words in (options or {}).items()
        }
        default = "two weeks" if limit == TWO_WEEKS else f"{limit:g}"
        timeout = f"time limit in minutes (default: {default}); to resume, rerun the task"
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
    if not limit:
        return body(**options)
    allowed = number("minutes", options.pop("minutes", "") or str(limit), 0.01, TWO_WEEKS)
    with deadline.limit(allowed * 60, f"This took longer than {allowed:g} minutes. {advice}"):
        return body(**options)


def reported(body: Callable[[Result], Result | None], options: Result) -> None:
    as_json = options.pop("json", False) or options.get("json_lines", False)
    try:  # this includes the imports, because Ctrl-C may interrupt one
        secrets.guard_tracebacks()
        if options.get("config") == "" and "competition" not in options:
            from deploy import init

            # Use the config chosen by `invoke init`, unless --run was pushed with another config.
            pushed_by = init.config_of(ROOT, options.get("run", ""))
            options["config"] = pushed_by or init.default_config(ROOT)
        result = body(options)
        if as_json:
            show_json(result)
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(130)
    except KeyboardInterrupt:
        code, message = CTRL_C, "Interrupted. Runs on Kaggle will continue:\ninvoke status"
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or (ROOT / package).exists():
            raise  # a bug in this project
        code, message = USAGE, (
            f"Package {package!r} is not installed for {sys.executable}.\n"
            "Activate another environment, or install the packages listed in pyproject.toml:\n"
            f"{shlex.quote(sys.executable)} -m pip install -e {shlex.quote(str(ROOT))}"
        )  # fmt: skip
    except Exception as error:
        known = getattr(error, "exit_code", None)
        if not isinstance(known, int):
            raise  # a bug in this project, so show the traceback
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
    if code in (DEADLINE, CTRL_C):
        # This is registered last, so it is called first. Otherwise, a library's clean-up might
        # wait forever for a lock that was never released.
        atexit.register(_leave, code)
    message = secrets.redact(message)
    with suppress(BrokenPipeError):
        print(message, file=sys.stderr, flush=True)
        if as_json:
            show_json({"error": message, "exit_code": code})
    sys.exit(code)


def about(config: str, message: str) -> str:
    """Add --config to the commands in a message, so that they do not use the default config.

    A command is either a whole line or the part of a line after a colon. Commands are completed
    here, because the code that raises an error usually does not know the value of --config.

    >>> _with_config.add("status")
    >>> print(about("leaves", "Nothing was pushed.\\ninvoke status"))
    Nothing was pushed.
    invoke status --config leaves
    """

    def complete(found: re.Match[str]) -> str:
        named = found[1] not in _with_config or "--config" in found[0]
        # Without --input it rehearses an embedded competition, which another config cannot use.
        named |= found[0].endswith("invoke dry-run")
        return found[0] if named else f"{found[0]} --config {shlex.quote(config)}"

    return COMMAND.sub(complete, message) if config else message


def read_words(collection: Collection) -> None:
    """Convert the positional arguments of a task to --competition, --config or --run.

    If an argument or option is unknown, this prints a message and exits with status 2. Invoke
    itself would exit with status 1. Invoke's own options are also accepted after the name of a
    task. Most of them have no effect there: a task without --config would silently ignore it. This
    function only allows --help.
    """
    from invoke.main import program

    core = vars(program).get("core")  # the command line, if invoke has already parsed it
    if core is None or not core.unparsed:
        return
    # Use a copy, because this call removes the tasks' help texts.
    words, contexts = core.unparsed, copy.deepcopy(collection).to_contexts()
    asked = ParserContext(args=[Argument(names=("help", "h"), optional=True)])
    while True:
        try:
            if (given := core[0].args["config"].value) is not None:
                raise ParseError(f"--config {given} must come after the name of the task.")
            Parser(initial=asked, contexts=contexts).parse_argv(list(words))
            return
        except ParseError as error:
            unknown = re.fullmatch(r"No idea what '(.*)' is!", str(error))
            word = unknown[1] if unknown else ""
            if not (option := _option_of(word, error.context)):
                said = _in_words(error, word, [each.name or "" for each in contexts])
                _end(USAGE, said, as_json="--json" in words)
            flags = error.context.flags if error.context else {}
            plain = (  # occurrences that are not an option's value, as in `invoke runs 1 1`
                at
                for at, one in enumerate(words)
                if one == word and not (words[at - 1] in flags and flags[words[at - 1]].takes_value)
            )
            words.insert(next(plain), option)


def _option_of(word: str, context: ParserContext | None) -> str:
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
    """Explain a parser error and suggest a correction. `word` is the unknown argument, or ""."""
    context = error.context
    name = context.name if context is not None and context.name else ""
    if lacks := re.match(r"Flag <Argument: ([\w-]+).*> needed value", str(error)):
        return f"--{lacks[1]} requires a value. For help, run:\ninvoke {name} --help"
    if context is None or not word:
        return str(error)
    said = f"{name} does not accept {word!r}." if name else f"There is no task {word!r}."
    known = list(context.flags) if name else names
    alike = difflib.get_close_matches(word.partition("=")[0], known, n=1)
    said += f" Did you mean {alike[0]}?" if alike else ""
    kinds, command = ("options", f"{name} --help") if name else ("tasks", "--list")
    return f"{said}\nTo list all {kinds}, run:\ninvoke {command}"


def new_folder(task: str) -> Path:
    return ROOT / "runs" / f"{task}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def show(line: str) -> None:
    print(secrets.redact(line), flush=True)


def show_json(value: Result | None) -> None:
    print(secrets.to_json(value), flush=True)


def number(option: str, text: str, least: float, most: float) -> float:
    """Return the value of an option as a number, or raise `UsageError`."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(
            f"Invalid --{option} {text[:40]}: expected a number from {least:.3g} to {most:g}."
        )
    return value


def agreement(yes: bool) -> Callable[[str], bool]:
    """Return a function that asks the user for confirmation, or always agrees if `yes` is set.

    Tasks that spend quota or a submission call this first, so that they fail before any work is
    done.

    Raises:
        CredentialError: if the user is not logged in.
        UsageError: if there is no terminal in which the user can be asked.
    """
    from deploy import auth

    auth.require()
    if yes:
        return lambda question: True
    if sys.stdin.closed or not sys.stdin.isatty():
        raise UsageError(
            "Cannot ask for confirmation because there is no terminal.\nTo agree in advance, add"
            " --yes."
        )

    def agreed(question: str) -> bool:
        try:
            return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:  # Ctrl-D
            return False

    return agreed
