"""Own code: a competitor's functions, which stand in the file of the config that names them.

`CONFIG` names a function where it could name one of ours: `model="se_resnet"`, `loss="focal"`,
`metric="weighted_dice"`, `augment="erased"`. A name is looked up in the config's own file first. A
config of several files is a package, pipeline/configs/<name>/.

`Config.code` is the sha256 of what that code computes: another comment or docstring makes no other
code. It leaves out `CONFIG` itself, so that a changed number there makes none either, and the
functions that no weight follows from, so that an error in them costs no training. It is in
checkpoint, artifact and journal. A process that has only the config's JSON finds the file by the
config's name, and compares.
"""

import ast
import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline.config.config import Config
from pipeline.errors import ConfigError, PipelineError, place

FIELDS = (
    "model",
    "loss",
    "metric",
    "augment",
    "read_training",
    "read_test",
    "write_submission",
)
# Of these, the functions that no weight follows from.
AFTER_TRAINING = ("metric", "read_test", "write_submission")
# The fields in which only an own function can stand, but for OUR_LOSSES.
OWN_ONLY = ("loss", "augment", "read_training", "read_test", "write_submission")
# Losses of `pipeline.evaluate.losses`, with the targets that they suit.
OUR_LOSSES = {"focal": ("classes", "multilabel")}

_loaded: dict[str, tuple[Path, ModuleType]] = {}  # by the sha256 of the code


def attached(config: Config, module: ModuleType, path: Path) -> Config:
    """Return the config with the sha256 of the code in its file; as it is, if it names none.

    Args:
        module: that holds it. path: of its file.

    Raises:
        ConfigError: if it names a function that the file does not have.
    """
    named = {field: getattr(config, field) for field in FIELDS}
    found = {field for field, name in named.items() if callable(getattr(module, name, None))}
    for field in (*OWN_ONLY, *(("metric",) if config.target == "own" else ())):
        ours = field == "loss" and named[field] in OUR_LOSSES
        if named[field] and field not in found and not ours:
            functions = [name for name, value in vars(module).items() if _own(value, module)]
            raise ConfigError(
                f"{field}={named[field]!r} cannot work: {path} has no such function; it has"
                f" {', '.join(functions) or 'none'}.\nWrite it there, correct the name, or leave"
                f" {field} out."
            )
    if config.loss and "loss" not in found:
        check_our_loss(config)
    if not found:
        return config
    try:
        code = fingerprint(path, *_after_training(config, module))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"A file beside {path} could not be read: {error}.\nCorrect it, or move it away."
        ) from error
    _loaded[code] = path, module
    return dataclasses.replace(config, code=code)


def check_our_loss(config: Config) -> None:
    """Raise `ConfigError` unless a loss that is no own function is one of ours, for the target."""
    suited = OUR_LOSSES.get(config.loss, ())
    if config.target not in suited:
        raise ConfigError(
            f"loss={config.loss!r} cannot work with target={config.target!r}: expected a function"
            f" of the config's own file, or 'focal' with {' or '.join(OUR_LOSSES['focal'])}.\n"
            "Leave loss out, or write the function (docs/own-code.md)."
        )


def function(config: Config, field: str) -> Callable[..., Any] | None:
    """Return the own function that a field of the config names; None if it is one of ours.

    Raises:
        ConfigError: if the code is not the one that the config was made with.
    """
    if not config.code or not (name := getattr(config, field)):
        return None
    found: Callable[..., Any] | None = getattr(_module(config)[1], name, None)
    return found


def file(config: Config) -> Path:
    """Return the file of the own code of a config that has some."""
    return _module(config)[0]


def elsewhere(config: Config) -> str:
    """Return the path of own code that no other process finds by the config's name; else ""."""
    if not config.code:
        return ""
    from pipeline.config import config_files

    path = file(config).resolve()
    return "" if path == config_files.named_files().get(config.name) else str(path)


def described(config: Config, field: str) -> str:
    """Return an own function in words, with file and line: "loss='focal' (leaves.py, line 12)"."""
    code = getattr(function(config, field), "__code__", None)
    where = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
    return f"{field}={getattr(config, field)!r}{where}"


@contextmanager
def telling(config: Config, field: str) -> Iterator[None]:
    """Tell what breaks in an own function with its file and line."""
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


def _after_training(config: Config, module: ModuleType) -> tuple[set[tuple[Path, str]], set[str]]:
    """Return files and names of functions that may be corrected when a training has ended, since no
    weight follows from them; and the names of those that train.
    """
    training = {getattr(config, field) for field in FIELDS if field not in AFTER_TRAINING}
    names = {getattr(config, field) for field in AFTER_TRAINING} - training
    codes = (getattr(getattr(module, name, None), "__code__", None) for name in names if name)
    return {(Path(code.co_filename), code.co_name) for code in codes if code}, training


def fingerprint(
    path: Path, spared: Collection[tuple[Path, str]] = (), training: Collection[str] = ()
) -> str:
    """Return the sha256 of the code in a config's file and in modules beside it that it imports, or
    of all files of its package.

    `CONFIG`, what computes nothing (comments, docstrings, line breaks), and functions in `spared`
    with those that only they call, do not count, unless code that counts refers to them.

    Args:
        spared: (file, name) of functions.
        training: names of the functions that train.
    """
    texts = {each: each.read_text(encoding="utf-8") for each in _files(path)}
    parts = [
        (each, part)
        for each, text in texts.items()
        for part in ast.parse(text).body
        if "CONFIG" not in _targets(part) and not _is_text(part)
    ]
    left, kept = set(spared), set[str]()

    def is_left(one: tuple[Path, ast.stmt]) -> bool:
        return isinstance(one[1], ast.FunctionDef) and (one[0], one[1].name) in left

    def counted() -> list[tuple[Path, ast.stmt]]:
        return [one for one in parts if not is_left(one)]

    reads = {id(part): _names(part) for _, part in parts}

    def read_by(some: Iterable[tuple[Path, ast.stmt]]) -> set[str]:
        return set().union(*(reads[id(part)] for _, part in some))

    before = None
    while left and left != before:  # until nothing changes
        before = set(left)
        kept |= {one[1] for one in left if one[1] in read_by(counted())}
        left = {one for one in left if one[1] not in kept}
        own = [one for one in parts if is_left(one)]
        helpers = {(each, part.name) for each, part in parts if isinstance(part, ast.FunctionDef)}
        for helper in helpers - left:
            others = [one for one in counted() if (one[0], getattr(one[1], "name", "")) != helper]
            free = helper[1] not in {*kept, *training} and helper[1] not in read_by(others)
            if free and helper[1] in read_by(own):
                left.add(helper)
    digest = hashlib.sha256()
    for each in texts:
        digest.update(each.relative_to(path.parent).as_posix().encode() + b"\0")
        for file, part in counted():
            if file == each:
                digest.update(_meaning(part).encode() + b"\n")
    return digest.hexdigest()


def _meaning(node: Any) -> str:
    """Return what a piece of code computes, as text: the same with other comments, docstrings,
    blank lines or line breaks, and with every version of Python.
    """
    if isinstance(node, list):
        told = (each for each in node if not _is_text(each))
        return f"[{' '.join(map(_meaning, told))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    # Versions differ in the fields that they leave empty, and in how they are printed.
    parts = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    inner = " ".join(f"{name}={_meaning(value)}" for name, value in parts if name != "type_comment")
    return f"{type(node).__name__}({inner})"


def _is_text(node: Any) -> bool:
    """Return whether a statement is a constant alone, as a docstring is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names(part: ast.stmt) -> set[str]:
    """Return all names that a statement reads, but for what it imports."""
    if isinstance(part, ast.Import | ast.ImportFrom):
        return {alias.name for alias in part.names if alias.asname}
    nodes = list(ast.walk(part))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def _files(path: Path) -> list[Path]:
    folder = path.parent
    if path.name == "__init__.py":
        # An editor keeps copies in hidden folders.
        seen = (file.relative_to(folder) for file in folder.rglob("*.py"))
        return sorted(folder / file for file in seen if not any(p[0] == "." for p in file.parts))
    files, new = {path}, [path]
    while new:
        for node in ast.walk(ast.parse(new.pop().read_text(encoding="utf-8"))):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = (name.removeprefix("pipeline.configs.").split(".")[0] for name in found)
            beside = {folder / f"{name}.py" for name in names if name}
            more = {file for file in beside - files if file.is_file()}
            files |= more
            new += more
    return sorted(files)


def _targets(part: ast.stmt) -> list[str]:
    found = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
    return [each.id for each in found if isinstance(each, ast.Name)]


def _own(value: Any, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", "") == module.__name__


def _module(config: Config) -> tuple[Path, ModuleType]:
    if config.code not in _loaded:
        from pipeline.config import config_files

        if config.name not in config_files.named_files():
            raise ConfigError(
                f"The functions of the config {config.name!r} are not here; expected"
                f" pipeline/configs/{config.name}.py.\nCopy it there, or give the path to --config."
            )
        there = config_files.load(config.name)
        if there.code != config.code:
            raise ConfigError(
                f"The functions of the config {config.name!r} are not those of the training: their"
                f" sha256 begins with {there.code[:12] or 'nothing (there are none)'}; expected"
                f" {config.code[:12]}.\nRestore pipeline/configs/{config.name}.py as it was in"
                " training, or train again."
            )
    return _loaded[config.code]
