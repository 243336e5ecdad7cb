"""What every task shares: its options, its deadline, how it prints, and how it ends.

Nothing heavy is imported before a command runs, so that `invoke --list` is instant.
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
BEGIN = ("start", "init")  # tasks of a competition
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
    "now": "submit at once: do not wait until five minutes after the pull",
    "ensemble": "an ensemble.json: its members, in place of the last training's model",
}
Body = Callable[..., Result | None]  # a task's


class _Task(tasks.Task[Any]):
    """A task of invoke. Its --config is also -c; no other option has a short name.

    invoke would choose them: -c would be --config in one task and --competition in the next.
    """

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        """Return what its option of that name is made of."""
        made = super().arg_opts(name, default, taken_names)
        return made | ({"names": ["config", "c"]} if name == "config" else {})


_with_config: set[str] = set()  # the tasks that act on a config; `init` chooses one


def task(
    limit: float = 0,
    *,
    advice: str = NOTHING_LOST,
    name: str = "",
    options: Mapping[str, str] | None = None,
    iterable: tuple[str, ...] = (),
    **help_: str,
) -> Callable[[Body], Any]:
    """Make a function a task of invoke, which prints its result, or an error as its message and
    exit code, without a traceback. Each has --json; an option's help is in `HELP`, or given here.

    Args:
        limit: minutes after which it is stopped, unless --minutes says another time; 0: never.
        advice: what to do then.
        options: texts that the function takes beside its parameters, "" by default: {name: help}.
        help_: `minutes=""` leaves out that option.
    """

    def decorate(body: Body) -> Any:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = [each for each in inspect.signature(body).parameters.values() if each.kind is kind]
        called = name or body.__name__.replace("_", "-")
        if {"config", "competition"} & {each.name for each in own} == {"config"}:
            _with_config.add(called)
        texts = {  # `for` is no name of a parameter
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
    """Run a task's body within its time."""
    if not limit:
        return body(**options)
    allowed = number("minutes", options.pop("minutes", "") or str(limit), 0.01, TWO_WEEKS)
    with deadline.limit(allowed * 60, f"This took longer than {allowed:g} minutes. {advice}"):
        return body(**options)


def reported(body: Callable[[Result], Result | None], options: Result) -> None:
    """Print what a task returns, or how it failed."""
    as_json = options.pop("json", False) or options.get("json_lines", False)
    try:  # around the imports too: Ctrl-C during one ends with a message
        secrets.guard_tracebacks()
        if options.get("config") == "" and "competition" not in options:
            from deploy import init

            # What `invoke init` chose, unless the run that is named is of another one.
            pushed_by = init.config_of(ROOT, options.get("run", ""))
            options["config"] = pushed_by or init.default_config(ROOT)
        result = body(options)
        if as_json:
            show_json(result)
    except BrokenPipeError:  # the reader, as `| head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(130)
    except KeyboardInterrupt:
        code, message = CTRL_C, "Interrupted. Runs on Kaggle continue:\ninvoke status"
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or (ROOT / package).exists():
            raise  # a bug of this project
        code, message = USAGE, (
            f"The Python at {sys.executable} has no package {package!r}, which pyproject.toml lists"
            ".\nActivate another environment, or install it:\n"
            f"{shlex.quote(sys.executable)} -m pip install -e {shlex.quote(str(ROOT))}"
        )  # fmt: skip
    except Exception as error:
        known = getattr(error, "exit_code", None)
        if not isinstance(known, int):
            raise  # a bug of this project: the traceback helps
        code, message = known, str(error)
    else:
        if result and result.get("exit_code"):
            sys.exit(result["exit_code"])  # measured and missed: no error, and no success
        return
    _end(code, about(options.get("config", ""), message), as_json=as_json)


def _leave(code: int) -> None:
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _end(code: int, message: str, *, as_json: bool) -> NoReturn:
    """End the process with a message, without secrets, and a code."""
    if code in (DEADLINE, CTRL_C):
        # Registered last, so called first: a library's clean-up may wait for a lost lock.
        atexit.register(_leave, code)
    message = secrets.redact(message)
    with suppress(BrokenPipeError):
        print(message, file=sys.stderr, flush=True)
        if as_json:
            show_json({"error": message, "exit_code": code})
    sys.exit(code)


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


def read_words(collection: Collection) -> None:
    """Take the words behind a task for its competition, config or runs, and end with exit code 2
    and a message if invoke was given what its tasks do not take.

    invoke itself ends with 1 then. And it takes its own options behind a task too, where most have
    no effect: a task without --config would run as if it had not been given. Here --help alone
    is taken there.
    """
    from invoke.main import program

    core = vars(program).get("core")  # what it was given, once it has read it
    if core is None or not core.unparsed:
        return
    # Of a copy: invoke takes the help of each task away as it reads.
    words, contexts = core.unparsed, copy.deepcopy(collection).to_contexts()
    asked = ParserContext(args=[Argument(names=("help", "h"), optional=True)])
    while True:
        try:
            if (given := core[0].args["config"].value) is not None:
                raise ParseError(
                    f"--config {given} stands before the task; expected behind its name."
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
            bare = (
                at
                for at, one in enumerate(words)
                if one == word and not (words[at - 1] in flags and flags[words[at - 1]].takes_value)
            )
            words.insert(next(bare), option)


def _option_of(word: str, context: ParserContext | None) -> str:
    """Return the option of its task that a word which nothing takes is for; "" if none is.

    It is a run, or the competition of a task that begins one, or else the config.
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
    """Return what was wrong and what may have been meant.

    Args:
        word: that nothing takes.
        names: of all tasks.
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
    return f"{said}\nTo see what there is:\ninvoke {f'{name} --help' if name else '--list'}"


def new_folder(task: str) -> Path:
    """Return a new folder's path in runs/, for what a task writes."""
    return ROOT / "runs" / f"{task}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def show(line: str) -> None:
    """Print a line at once, without secrets."""
    print(secrets.redact(line), flush=True)


def show_json(value: Result | None) -> None:
    """Print a value at once as one line of JSON, without secrets."""
    print(secrets.to_json(value), flush=True)


def number(option: str, text: str, least: float, most: float) -> float:
    """Return an option's number; raise `UsageError` unless it is one from `least` to `most`."""
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
    """Return what asks a person for a yes; with `yes` all is agreed to. It is the first that a task
    does that spends something: what is lacking here is told before a call, and before any work.

    Raises:
        CredentialError: if nobody is logged in.
        UsageError: if there is nobody to ask.
    """
    from deploy import auth

    auth.require()
    if yes:
        return lambda question: True
    if sys.stdin.closed or not sys.stdin.isatty():
        raise UsageError(
            "There is no terminal to ask before anything is spent; expected one, or the answer.\n"
            "Add --yes."
        )

    def agreed(question: str) -> bool:
        try:
            return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:  # Ctrl-D
            return False

    return agreed
