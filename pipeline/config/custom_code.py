"""Find a config's custom functions, which are defined in the same file as the config.

Custom functions take precedence over built-in ones with the same name. Checkpoints and artifacts
contain a digest of all code that the weights depend on. The digest does not include `CONFIG`,
comments, docstrings, or functions that are only used after training, so you can still edit these.
Code is always run from the file, never from an artifact.
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

# Fields that can name a custom function. The fields in `TRAINING` affect the weights.
TRAINING = (
    *("model", "loss", "augment", "augment_batch", "sampler", "train_step", "read_training"),
    *("optimizer.name", "optimizer.schedule"),
)
AFTER_TRAINING = ("metric", "read_test", "postprocess", "write_submission", "log")
# Built-in values that some of these fields accept as well.
OURS = {
    "loss": "'focal', for classes and multilabel",
    "optimizer.name": f"{', '.join(OPTIMIZERS)} and classes of keras.optimizers, such as 'Lion'",
    "optimizer.schedule": ", ".join(map(repr, SCHEDULES)),
    "sampler": "'balanced'",
}


class CustomFile(NamedTuple):
    """The Python file of a loaded config, and the digest of its code."""

    path: Path
    module: ModuleType
    digest: str


_loaded: dict[str, CustomFile] = {}  # keyed by config name


def register(config: Config, module: ModuleType, path: Path) -> None:
    """Register the file that contains a config's custom functions.

    Raises:
        ConfigError: if the config refers to a function that does not exist.
    """
    named = _named(config, module)
    for field in TRAINING + AFTER_TRAINING:
        name = attrgetter(field)(config)
        if name and field not in named and not _is_ours(config, field, name):
            others = f" Built-in values: {OURS[field]}." if field in OURS else ""
            raise ConfigError(
                f"{field}={name!r} is invalid: {path} has no function with that name. Available"
                f" functions: {', '.join(written(config, path)) or 'none'}.\nAdd it there, correct"
                f" the name, or omit {field}.{others}"
            )
    training = {attrgetter(field)(config) for field in named if field in TRAINING}
    _loaded[config.name] = CustomFile(path, module, fingerprint(path, training) if training else "")


def _is_ours(config: Config, field: str, name: str) -> bool:
    """Return whether a name can refer to a built-in function or class.

    Names of Keras classes are not checked until they are used.
    """
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
    return _named(config, _loaded[config.name].module) if config.name in _loaded else {}


def function(config: Config, field: str) -> Callable[..., Any] | None:
    return functions(config).get(field)


def digest(config: Config) -> str:
    """Return the digest of a config's custom functions, or "" if there are none."""
    return _loaded[config.name].digest if functions(config) else ""


def written(config: Config, path: Path | None = None) -> list[str]:
    """Return the names of all functions in a config's file, or [] if it has not been loaded."""
    path = path or (file(config) if config.name in _loaded else None)
    body = _parsed(path).body if path else []
    return [each.name for each in body if isinstance(each, ast.FunctionDef)]


def file(config: Config) -> Path:
    return _loaded[config.name].path


def require(config: Config, trained: str) -> None:
    """Load the custom functions for a config that was stored in an artifact or a checkpoint.

    Args:
        trained: digest of the functions used in training, or "" if there were none.

    Raises:
        ConfigError: if functions are missing, or differ from those used in training.
    """
    from pipeline.config import config_files

    has_code = trained or config.postprocess
    if config.name not in _loaded and has_code and config.name in config_files.named_files():
        config_files.load(config.name)
    if digest(config) != trained:
        here = file(config) if config.name in _loaded else "pipeline/configs/"
        raise ConfigError(
            f"The custom functions of the config {config.name!r} are not the ones used in training:"
            f" their sha256 starts with {digest(config)[:12] or '(no functions)'}; expected"
            f" {trained[:12] or 'no functions'}. Functions are loaded from {here}.\nRestore the"
            f" version of pipeline/configs/{config.name}.py that was used in training, or pass its"
            " path to --config."
        )


def described(config: Config, field: str) -> str:
    """Describe a custom function, e.g. as "loss='focal' (leaves.py, line 12)"."""
    custom: Any = function(config, field)
    where = ""
    with suppress(OSError, TypeError):  # a built-in function, or one not created by "def"
        where = f" ({Path(inspect.getfile(custom)).name}, line {inspect.getsourcelines(custom)[1]})"
    return f"{field}={attrgetter(field)(config)!r}{where}"


@contextmanager
def telling(config: Config, field: str) -> Iterator[None]:
    """Convert an exception from a custom function to a `ConfigError` with the file and line."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        first, path = (str(error).splitlines() or [""])[0][:300], file(config)
        kind, more = type(error).__name__, ""
        # A layer created its weights in the first call, after the model had been built.
        late = kind == "UnexpectedTracerError" or "corresponding 1:1" in first
        if field == "model" and late:
            more = (
                " If one of its layers contains other layers, build them in its build() method, or"
                " remove compute_output_shape."
            )
        raise ConfigError(
            f"{described(config, field)} raised {kind}{place(error, path)}: {first}\n"
            f"Fix that line of {path}.{more}"
        ) from error


def fingerprint(path: Path, training: Collection[str]) -> str:
    """Return the SHA-256 of the code in `files(path)` that training depends on.

    Functions are included if they are listed in `training`, have a decorator, or are used by other
    included code. All other statements are included, except `CONFIG` and docstrings.
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
    text = re.sub(r"\w+=\[\]|, ", "", text)  # some Python versions omit empty lists
    return hashlib.sha256(text.encode()).hexdigest()


def files(path: Path) -> list[Path]:
    """Return the files of a config.

    These are all files in its package, or its own file and the neighbouring files that it imports.
    """
    folder, files, waiting = path.parent, set(), {path}
    if path.name == "__init__.py":
        # Editors store copies in hidden folders.
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
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return any(isinstance(target, ast.Name) and target.id == "CONFIG" for target in targets)


def _names_read(statement: ast.stmt) -> set[str]:
    """Return the names that a statement reads. Imported names only count if they are renamed."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.name for alias in statement.names if alias.asname}
    nodes = list(ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
