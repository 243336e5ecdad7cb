"""Custom code: a competitor's functions, in the file of the config that names them.

`CONFIG` may name a function of its file in place of one of ours: `model="se_resnet"`,
`loss="focal"`, `metric="weighted_dice"`. Its file is searched first. A config of several files is a
package, pipeline/configs/<name>/.

Checkpoints and artifacts contain a digest of the code that the weights depend on. It ignores
`CONFIG`, comments, docstrings, and functions that only the metric, the reader of the test set or
the writer of the submission use, so that these can be fixed after a training. Code always runs from
the file, never from an artifact.
"""

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pipeline.config.config import OPTIMIZERS, SCHEDULES, Config
from pipeline.errors import ConfigError, PipelineError, place

# The fields that may name a custom function: those that weights depend on, and the others.
TRAINING = (
    *("model", "loss", "augment", "augment_batch", "sampler", "train_step", "read_training"),
    *("optimizer.name", "optimizer.schedule"),
)
AFTER_TRAINING = ("metric", "read_test", "write_submission", "log")
# What some of them may name beside a custom function.
OURS = {
    "loss": "'focal', for classes and multilabel",
    "optimizer.name": f"{', '.join(OPTIMIZERS)} and the classes of keras.optimizers, as 'Lion'",
    "optimizer.schedule": ", ".join(map(repr, SCHEDULES)),
    "sampler": "'balanced'",
}


class CustomFile(NamedTuple):
    """A config's file when it was loaded: its path, module and digest."""

    path: Path
    module: ModuleType
    digest: str


_loaded: dict[str, CustomFile] = {}  # by the config's name


def register(config: Config, module: ModuleType, path: Path) -> None:
    """Remember the file of a config, whose functions it may name.

    Raises:
        ConfigError: if it names a function that does not exist.
    """
    named = _named(config, module)
    for field in TRAINING + AFTER_TRAINING:
        name = attrgetter(field)(config)
        if name and field not in named and not _is_ours(config, field, name):
            others = f" Ours are {OURS[field]}." if field in OURS else ""
            raise ConfigError(
                f"{field}={name!r} cannot work: {path} has no such function; it has"
                f" {', '.join(written(config, path)) or 'none'}.\nWrite it there, correct the name,"
                f" or leave {field} out.{others}"
            )
    training = {attrgetter(field)(config) for field in named if field in TRAINING}
    _loaded[config.name] = CustomFile(path, module, fingerprint(path, training) if training else "")


def _is_ours(config: Config, field: str, name: str) -> bool:
    """Return whether a name may be one of ours or of Keras, which alone knows all of its own."""
    return {
        "model": True,
        "metric": config.target != "custom",
        "loss": name == "focal" and config.target in ("classes", "multilabel"),
        "optimizer.name": name in OPTIMIZERS or name[0].isupper(),
        "optimizer.schedule": name in SCHEDULES,
        "sampler": name == "balanced",
    }.get(field, False)


def _named(config: Config, module: ModuleType) -> dict[str, Callable[..., Any]]:
    names = {field: attrgetter(field)(config) for field in TRAINING + AFTER_TRAINING}
    found = {field: getattr(module, name, None) for field, name in names.items()}
    return {field: value for field, value in found.items() if callable(value)}


def functions(config: Config) -> dict[str, Callable[..., Any]]:
    """Return the custom functions that a loaded config names, by field."""
    return _named(config, _loaded[config.name].module) if config.name in _loaded else {}


def function(config: Config, field: str) -> Callable[..., Any] | None:
    """Return the custom function that a field of the config names; None if there is none."""
    return functions(config).get(field)


def digest(config: Config) -> str:
    """Return the digest of a config's custom functions; "" if it names none."""
    return _loaded[config.name].digest if functions(config) else ""


def written(config: Config, path: Path | None = None) -> list[str]:
    """Return the names of the functions in a config's file; [] if it was not loaded."""
    path = path or (file(config) if config.name in _loaded else None)
    body = _parsed(path).body if path else []
    return [each.name for each in body if isinstance(each, ast.FunctionDef)]


def file(config: Config) -> Path:
    """Return the file of a loaded config."""
    return _loaded[config.name].path


def require(config: Config, trained: str) -> None:
    """Load the custom functions of a config that was read from an artifact or a checkpoint.

    Args:
        trained: their digest in training; "" if there were none.

    Raises:
        ConfigError: if they are missing or differ from those in training.
    """
    from pipeline.config import config_files

    if config.name not in _loaded and trained and config.name in config_files.named_files():
        config_files.load(config.name)
    if digest(config) != trained:
        here = file(config) if config.name in _loaded else "pipeline/configs/"
        raise ConfigError(
            f"The custom functions of the config {config.name!r} are not those of the training:"
            f" their sha256 starts with {digest(config)[:12] or '(there are none)'}; expected"
            f" {trained[:12] or 'no functions'}. They were looked for in {here}.\nRestore"
            f" pipeline/configs/{config.name}.py as it was in training, or pass its path: --config."
        )


def described(config: Config, field: str) -> str:
    """Return a custom function in words: "loss='focal' (leaves.py, line 12)"."""
    custom: Any = function(config, field)
    where = ""
    with suppress(OSError, TypeError):  # one of ours, or not made by "def"
        where = f" ({Path(inspect.getfile(custom)).name}, line {inspect.getsourcelines(custom)[1]})"
    return f"{field}={attrgetter(field)(config)!r}{where}"


@contextmanager
def telling(config: Config, field: str) -> Iterator[None]:
    """Turn an exception in a custom function into a `ConfigError` with file and line."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        first, path = (str(error).splitlines() or [""])[0][:300], file(config)
        kind, more = type(error).__name__, ""
        # A layer got its weights in the first call, when the model had been built.
        late = kind == "UnexpectedTracerError" or "corresponding 1:1" in first
        if field == "model" and late:
            more = (
                " If one of its layers contains layers, build these in its build(), or leave"
                " compute_output_shape out."
            )
        raise ConfigError(
            f"{described(config, field)} ended with {kind}{place(error, path)}: {first}\n"
            f"Correct that line of {path}.{more}"
        ) from error


def fingerprint(path: Path, training: Collection[str]) -> str:
    """Return the sha256 of the code that training depends on, in `files(path)`.

    A function counts if it is one of `training`, is decorated, or is named by code that counts. So
    do all other statements but `CONFIG` and docstrings.
    """
    statements = [
        (file.relative_to(path.parent).as_posix(), statement)
        for file in files(path)
        for statement in _parsed(file).body
        if not _is_config(statement)
    ]
    names, known = set(training), -1
    while len(names) > known:
        known = len(names)
        counted = [
            (file, each)
            for file, each in statements
            if not isinstance(each, ast.FunctionDef) or each.name in names or each.decorator_list
        ]
        names = names.union(*(_names_read(each) for _, each in counted))
    text = "\n".join(f"{file}: {ast.dump(each)}" for file, each in counted)
    text = re.sub(r"\w+=\[\]|, ", "", text)  # some versions of Python leave empty lists out
    return hashlib.sha256(text.encode()).hexdigest()


def files(path: Path) -> list[Path]:
    """Return the files of a config: all of its package, or its own and those beside it that it
    imports.
    """
    folder, files, waiting = path.parent, set(), {path}
    if path.name == "__init__.py":
        # Editors keep copies in hidden folders.
        inner = {file.relative_to(folder) for file in folder.rglob("*.py")}
        return sorted(folder / file for file in inner if "/." not in f"/{file}")
    while waiting:
        files |= waiting
        nodes = [node for file in waiting for node in ast.walk(_parsed(file))]
        modules = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        names = {name.removeprefix("pipeline.configs.").split(".")[0] for name in modules}
        waiting = {file for name in names if (file := folder / f"{name}.py").is_file()} - files
    return sorted(files)


def _parsed(file: Path) -> ast.Module:
    """Return a file's code without its docstrings."""
    parsed = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(parsed):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [  # type: ignore[attr-defined]
                each
                for each in body
                if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
    return parsed


def _is_config(statement: ast.stmt) -> bool:
    """Return whether a statement assigns `CONFIG`."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return any(isinstance(target, ast.Name) and target.id == "CONFIG" for target in targets)


def _names_read(statement: ast.stmt) -> set[str]:
    """Return the names that a statement reads, without imports under the same name."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.name for alias in statement.names if alias.asname}
    nodes = list(ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
