"""Write a config file, or parse or edit an existing one."""

import ast
import dataclasses
import json
import keyword
import re
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from formats import atomic_file
from pipeline import config as configs
from pipeline.config import Baseline, Config, config_files
from pipeline.errors import ConfigError
from workbench.budget import shown
from workbench.inspect.inputs import Reader
from workbench.inspect.inspection import Inspection
from workbench.inspect.recipes import CPU, Recipe

LINE = 100  # characters
IMPORT = "from pipeline.config import "
NAME = re.compile(r"[a-z][a-z0-9_]*")
# Folder names that are too general to be the name of a competition.
GENERAL = {"competition", "competitions", "data", "dataset", "download", "downloads", "files"}
GENERAL |= {"input", "kaggle", "tmp", "temp", "test", "train"}
UNNAMED = "unnamed-competition"
TEMPLATES = Environment(  # noqa: S701 - Python code, not HTML
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
# Comments above fields that the user did not set. Setting the field removes its comment.
COMMENTS = {
    "metric": "A default. If the competition has another metric, use `invoke inspect --metric`.",
    "competition": "Assumed to be the last part of the Kaggle URL. "
    "To change it: `invoke init --competition`.",
}


# -- a new file


def text(found: Inspection, made: Recipe, *, given: bool) -> str:
    """Return the source code of a config file. `given` is True if the user specified the slug."""
    config, cpu, classes = made.config, made.plan.machine == CPU, found.target.classes
    command = f"python -m pipeline train --config {config.name} --input DIR --output OUT"
    known = "measured by inspect" if cpu else "estimated; not yet run there"
    wanted = f"{len(classes)} labels" if classes else "numeric targets"
    kind = f"{config.data.kind}, {wanted}"
    default = COMMENTS["metric"]
    if made.reader is not None:  # `inspect --metric` cannot edit these
        kind, default = made.reader.template.replace("_", " "), default.partition(" `")[0]
    comments = {
        "competition": "" if given else COMMENTS["competition"],
        "metric": "" if found.target.sure else default,
        "epochs": f"A first guess: {made.reasons['epochs'].partition(':')[2].strip()}.",
    }
    return _rendered(
        config,
        made.reader,
        what=f"{kind}, {len(found.labels):,} labelled rows",
        machine=made.plan.machine,
        command=command if cpu else f"invoke relay --config {config.name}",
        expect=f"training takes about {shown(made.seconds)} ({known})",
        baseline=_about(config.baseline) + "\n" if config.baseline else "",
        comments={name: textwrap.wrap(words, LINE - 6) for name, words in comments.items()},
    )


def _rendered(config: Config, reader: Reader | None, **words: Any) -> str:
    template, more = "config.py.j2", dict[str, Any]()
    if reader is not None:
        template = f"{reader.template}.py.j2"
        more = {**reader.values, "pictures": reader.pictures}
    return TEMPLATES.get_template(template).render(
        config=config,
        imports="Baseline, " * bool(config.baseline) + "Config, Data, Optimizer",
        fields={name: literal(value, 4, len(name) + 2) for name, value in _different(config)},
        **more,
        **words,
    )


def register(config: Config, reader: Reader) -> None:
    """Register the custom functions of a config whose file has not been written yet."""
    words = dict.fromkeys(("what", "machine", "command", "expect", "baseline"), "")
    with tempfile.TemporaryDirectory(prefix="config-") as scratch:
        path = Path(scratch) / f"{config.name}.py"
        path.write_bytes(_rendered(config, reader, comments={}, **words).encode())
        configs.load(str(path))


def _about(baseline: Baseline) -> str:
    return "\n".join(textwrap.wrap(f"Baseline  {baseline}", LINE, subsequent_indent=" " * 10))


def _different(value: Any) -> list[tuple[str, Any]]:
    found = []
    for field in dataclasses.fields(value):
        factory, given = field.default_factory, getattr(value, field.name)
        if given != (field.default if factory is dataclasses.MISSING else factory()):
            found.append((field.name, given))
    return found


def literal(value: Any, indent: int = 0, beside: int = 0) -> str:
    """Format a value as Python code, on a single line if it fits, or else with one item per line.

    Args:
        indent: indentation of the line.
        beside: number of other characters on the line.

    >>> literal({"width": 32}), literal((0.5, "it's")), literal(("a",))
    ('{"width": 32}', '(0.5, "it\\'s")', '("a",)')
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    ends = "()"
    if dataclasses.is_dataclass(value):
        ends = f"{type(value).__name__}()"
        parts = [(f"{name}=", each) for name, each in _different(value)]
    elif isinstance(value, Mapping):
        ends, parts = "{}", [(f"{literal(name)}: ", each) for name, each in value.items()]
    elif isinstance(value, tuple):
        parts = [("", each) for each in value]
    else:
        return repr(value)
    deeper = indent + 4
    lines = [f"{name}{literal(each, deeper, len(name) + 1)}" for name, each in parts]
    comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
    short = f"{ends[:-1]}{', '.join(lines)}{comma}{ends[-1]}"
    if "\n" not in short and indent + beside + len(short) <= LINE:
        return short
    below = [f"{' ' * deeper}{line}," for line in lines]
    return "\n".join([ends[:-1], *below, " " * indent + ends[-1]])


TEMPLATES.filters["literal"] = literal


def place(name: str) -> Path:
    """Return the path that --write specifies, which is a config's name or the path of a .py file.

    Raises:
        ConfigError: if this is not a valid config name.
    """
    is_path = name.endswith(".py")
    path = Path(name) if is_path else config_files.CONFIGS / f"{name}.py"
    valid = NAME.fullmatch(path.stem) and not keyword.iskeyword(path.stem)
    if not valid or ("/" in name and not is_path):
        raise ConfigError(
            f"Invalid --write {name}: it must be a config name or the path of a .py file.\n"
            "Use only lower-case letters, digits and underscores, and start with a letter."
        )
    return path


def refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path} already exists.\n"
            "Choose another name, or only update its metric and baseline:\n"
            f"invoke inspect --input DIR --write {path.stem} --metric NAME"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"Cannot write {path}: the folder {path.parent} does not exist.\n"
            "Create the folder, or choose another path with --write."
        )


def _slug(name: str) -> str:
    """Convert a name to a slug, or return "" if the name is too general."""
    slug = name  # if it is already a slug, keep its capital letters
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}", name):
        slug = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:100].strip("-")
    return slug if len(slug) > 2 and slug.lower() not in GENERAL else ""


def names(folder: Path, path: Path | None, competition: str) -> tuple[str, str]:
    """Return the config's name and the competition's slug.

    If the user did not specify them, they are derived from the name of the folder. If that name is
    too general, the name of the config file is used instead.

    >>> names(Path("data/Leaf Diseases"), None, "")
    ('leaf_diseases', 'leaf-diseases')
    >>> names(Path("competition"), None, ""), names(Path("competition"), Path("leaves.py"), "")
    (('unnamed_competition', 'unnamed-competition'), ('leaves', 'leaves'))
    """
    config = path.stem if path else ""
    slug = competition or _slug(folder.resolve().name) or _slug(config) or UNNAMED
    name = re.sub(r"[^a-z0-9]+", "_", slug.lower())
    name = name if name[:1].isalpha() else f"c_{name}"
    return config or (f"{name}_" if keyword.iskeyword(name) else name), slug


# -- an existing file


class Stated(NamedTuple):
    """Some fields of a config, parsed from its source code.

    `assumed` is True if `invoke inspect` derived the slug from a folder name.
    """

    competition: str
    assumed: bool
    infer_hours: float | None


def stated(config: str = "") -> dict[str, Stated]:
    """Return some fields of each config in pipeline/configs/, keyed by config name.

    Config files are parsed without running them, so a config is omitted if its slug is not a string
    literal. Only the file of the config named `config` is run.

    Raises:
        ConfigError: if there is no config with that name, or if running it fails.
    """
    found = {}
    if config:
        named = configs.load(config)
        found[config] = Stated(named.competition, False, named.infer_hours)
    for name, path in config_files.named_files().items():
        try:
            source = path.read_bytes().decode()
            given = _given(ast.parse(source))
        except (OSError, ValueError, SyntaxError):
            continue  # the error is reported when the config is loaded
        constants = {name: getattr(each.value, "value", None) for name, each in given.items()}
        slug, hours = constants.get("competition"), constants.get("infer_hours")
        if isinstance(slug, str):
            hours = float(hours) if isinstance(hours, int | float) else None
            found[name] = Stated(slug, COMMENTS["competition"] in source, hours)
    return found


def put(name: str, fields: Mapping[str, Any]) -> Path:
    """Set fields of a config in pipeline/configs/ (see `edit`), and return the path of its file."""
    path = config_files.named_files()[name]
    if fields:
        edit(path, configs.load(name), fields)
    return path


def edit(path: Path, before: Config, fields: Mapping[str, Any]) -> None:
    """Set fields in a config file. `before` is the config that the file currently defines.

    Raises:
        ConfigError: if the file cannot be edited safely. In that case, the file is not changed, and
            the message contains the lines that the user should add.
    """
    try:
        new = edited(path.read_bytes().decode(), before, fields)
        with tempfile.TemporaryDirectory(prefix="config-") as scratch:
            copy = Path(scratch) / f"{before.name}.py"
            copy.write_bytes(new.encode())
            made = configs.load(str(copy))
        if made != replace(before, **fields):
            raise ValueError("the edited file would define a different config")
    except (ValueError, SyntaxError, ConfigError) as error:
        lines = "".join(f"\n{name}={literal(value, -LINE)}," for name, value in fields.items())
        raise ConfigError(
            f"{path} was not changed: {str(error).splitlines()[0]}.\n"
            "The file must contain CONFIG = Config(…) with literal values for "
            f"{' and '.join(fields)}. Add these lines yourself:{lines}"
        ) from error
    atomic_file.write(path, new.encode())


def edited(text: str, before: Config, fields: Mapping[str, Any]) -> str:
    """Return a config's source code with new values for some fields.

    If `invoke inspect` wrote the file's docstring, the competition and the baseline are replaced in
    the docstring, too. The caller must check that the result defines the intended config.

    Raises:
        ValueError: if there is no assignment CONFIG = Config(…).
    """
    given = _given(ast.parse(text))
    head, opened, body = text.partition("CONFIG = Config(")
    for name, value in fields.items():
        line = f"{name}={literal(value, 4, len(name) + 2)}"
        old = ast.get_source_segment(text, given[name]) if name in given else None
        body = body.replace(old, line, 1) if old else f"\n    {line},{body}"
        body = body.replace(f"    # {COMMENTS.get(name)}\n", "", 1)
    if "competition" in fields:
        head = head.replace(f'"""{before.competition}: ', f'"""{fields["competition"]}: ', 1)
    if before.baseline is not None and "baseline" in fields:
        head = head.replace(_about(before.baseline), _about(fields["baseline"]), 1)
    if "baseline" in fields and not re.search(r"import .*\bBaseline\b", head):
        head = head.replace(IMPORT, f"{IMPORT}Baseline, ", 1)
    return head + opened + body


def _given(tree: ast.Module) -> dict[str, ast.keyword]:
    calls = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "CONFIG"
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "Config"
    ]
    if len(calls) != 1:
        raise ValueError("CONFIG = Config(…) was not found")
    return {given.arg: given for given in calls[0].keywords if given.arg}
