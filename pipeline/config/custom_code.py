"""Custom code: a competitor's functions, which stand in the file of the config that names them.

`CONFIG` names a function where it could name one of ours: `model="se_resnet"`, `loss="focal"`,
`metric="weighted_dice"`, `augment="erased"`. A name is looked up in the config's own file first. A
config of several files is a package, pipeline/configs/<name>/.

The digest of this code is in checkpoints and artifacts. It leaves out what no weight follows from:
`CONFIG`, comments and docstrings, and functions that only a metric, a reader of the test set or a
writer of the submission call. So an error in these costs no training. Code runs from the file
alone, never from an artifact.
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

# The fields that may name a custom function: those that the weights follow from, and the others.
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
    """A config's file as it was when it was loaded: its path, its module and its digest."""

    path: Path
    module: ModuleType
    digest: str


_loaded: dict[str, CustomFile] = {}  # by the config's name


def register(config: Config, module: ModuleType, path: Path) -> None:
    """Keep the file of a config, whose functions it may name.

    Raises:
        ConfigError: if it names a function that the file does not have.
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
    """Return whether a name may be the template's, or that of a class of Keras. Whether there is
    such a model or metric is not known before Keras is imported.
    """
    if field == "loss":
        return name == "focal" and config.target in ("classes", "multilabel")
    if field == "metric":
        return config.target != "custom"
    if field == "optimizer.name":
        return name in OPTIMIZERS or name[0].isupper()
    return field == "model" or name in {
        "optimizer.schedule": SCHEDULES,
        "sampler": ("balanced",),
    }.get(field, ())


def _named(config: Config, module: ModuleType) -> dict[str, Callable[..., Any]]:
    names = {field: attrgetter(field)(config) for field in TRAINING + AFTER_TRAINING}
    found = {field: getattr(module, name, None) for field, name in names.items()}
    return {field: value for field, value in found.items() if callable(value)}


def functions(config: Config) -> dict[str, Callable[..., Any]]:
    """Return the custom functions that a loaded config names, by field."""
    return _named(config, _loaded[config.name].module) if config.name in _loaded else {}


def function(config: Config, field: str) -> Callable[..., Any] | None:
    """Return the custom function that a field of the config names; None if it is one of ours."""
    return functions(config).get(field)


def digest(config: Config) -> str:
    """Return the digest of a config's custom functions; "" if it names none."""
    return _loaded[config.name].digest if functions(config) else ""


def written(config: Config, path: Path | None = None) -> list[str]:
    """Return the names of the functions in the file of a config; [] if it was not loaded."""
    path = path or (file(config) if config.name in _loaded else None)
    body = _parsed(path).body if path else []
    return [each.name for each in body if isinstance(each, ast.FunctionDef)]


def file(config: Config) -> Path:
    """Return the file of a loaded config."""
    return _loaded[config.name].path


def require(config: Config, trained: str) -> None:
    """Load the custom functions of a config that was read from an artifact or a checkpoint.

    Args:
        trained: the digest of those that it was trained with; "" if there were none.

    Raises:
        ConfigError: if they are not here, or others than in training.
    """
    from pipeline.config import config_files

    if config.name not in _loaded and trained and config.name in config_files.named_files():
        config_files.load(config.name)
    if digest(config) != trained:
        here = _loaded[config.name].path if config.name in _loaded else "no file of that name"
        raise ConfigError(
            f"The functions of the config {config.name!r} are not those of the training: their"
            f" sha256 begins with {digest(config)[:12] or 'nothing (there are none)'}; expected"
            f" {trained[:12] or 'nothing'}. Here is {here}.\nRestore"
            f" pipeline/configs/{config.name}.py as it was in training, or name its path: --config."
        )


def described(config: Config, field: str) -> str:
    """Return a custom function in words: "loss='focal' (leaves.py, line 12)"."""
    custom: Any = function(config, field)
    where = ""
    with suppress(OSError, TypeError):  # one of ours, or made by something else than "def"
        where = f" ({Path(inspect.getfile(custom)).name}, line {inspect.getsourcelines(custom)[1]})"
    return f"{field}={attrgetter(field)(config)!r}{where}"


@contextmanager
def telling(config: Config, field: str) -> Iterator[None]:
    """Report what breaks in a custom function with its file and line."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        first, path = (str(error).splitlines() or [""])[0][:300], file(config)
        kind, more = type(error).__name__, ""
        # The first call makes the weights, or the second one finds more than the model had.
        late = kind == "UnexpectedTracerError" or "corresponding 1:1" in first
        if field == "model" and late:
            more = (
                " If a layer of it makes layers: one inside has no weights before its first call;"
                " build it in build(), or leave compute_output_shape out."
            )
        raise ConfigError(
            f"{described(config, field)} ended with {kind}{place(error, path)}: {first}\n"
            f"Correct that line of {path}.{more}"
        ) from error


def fingerprint(path: Path, training: Collection[str]) -> str:
    """Return the sha256 of the code that trains: in a config's file and in modules beside it that
    it imports, or in all files of its package.

    A function counts if it is one of `training`, or is decorated, or if what counts reads its name.
    Other statements count, but for `CONFIG` and docstrings.
    """
    statements = [
        (file.relative_to(path.parent).as_posix(), statement)
        for file in files(path)
        for statement in _parsed(file).body
        if not _is_config(statement)
    ]
    names, known = set(training), -1
    while len(names) > known:  # until no further function counts
        known = len(names)
        counted = [
            (file, each)
            for file, each in statements
            if not isinstance(each, ast.FunctionDef) or each.name in names or each.decorator_list
        ]
        names = names.union(*(_names_read(each) for _, each in counted))
    text = "\n".join(f"{file}: {ast.dump(each)}" for file, each in counted)
    text = re.sub(r"\w+=\[\]|, ", "", text)  # some versions of Python leave out what is empty
    return hashlib.sha256(text.encode()).hexdigest()


def files(path: Path) -> list[Path]:
    """Return the files of a config: those of its package, or its own with those that it imports."""
    folder, files, waiting = path.parent, set(), {path}
    if path.name == "__init__.py":
        # An editor keeps copies in hidden folders.
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
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return parsed


def _is_text(node: ast.AST) -> bool:
    """Return whether a statement is a constant alone, as a docstring is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_config(statement: ast.stmt) -> bool:
    """Return whether a statement assigns `CONFIG`."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return any(isinstance(target, ast.Name) and target.id == "CONFIG" for target in targets)


def _names_read(statement: ast.stmt) -> set[str]:
    """Return all names that a statement reads, but for what it imports under the same name."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.name for alias in statement.names if alias.asname}
    nodes = list(ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
