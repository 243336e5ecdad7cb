"""The file of a config: written from a template, edited, or parsed without running it."""

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
# Names of folders that do not name a competition.
GENERAL = {"competition", "competitions", "data", "dataset", "download", "downloads", "files"}
GENERAL |= {"input", "kaggle", "tmp", "temp", "test", "train"}
UNNAMED = "unnamed-competition"
TEMPLATES = Environment(  # noqa: S701 - of Python, no HTML
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
# Above fields that the user did not choose. Setting the field removes its comment.
COMMENTS = {
    "metric": "A default: only the competition page has it. `invoke inspect --metric` sets it.",
    "competition": "Assumed: the last part of its address on Kaggle. `invoke init --competition` "
    "sets it.",
}


# -- a new file


def text(found: Inspection, made: Recipe, *, given: bool) -> str:
    """Return the file of a config for `pipeline.config.load`, with the values that differ from the
    defaults.

    Args:
        given: whether the user named the competition's slug.
    """
    config, cpu, classes = made.config, made.plan.machine == CPU, found.target.classes
    command = f"python -m pipeline train --config {config.name} --input DIR --output OUT"
    known = "measured on the machine that wrote this" if cpu else "assumed; not yet run there"
    wanted = f"{len(classes)} labels" if classes else "numbers to predict"
    kind = f"{config.data.kind}, {wanted}"
    default = COMMENTS["metric"]
    if made.reader is not None:  # `inspect --metric` does not edit these
        kind, default = made.reader.template.replace("_", " "), default.partition(" `")[0]
    comments = {
        "competition": "" if given else COMMENTS["competition"],
        "metric": "" if found.target.sure else default,
        "epochs": f"A start: {made.reasons['epochs'].partition(':')[2].strip()}.",
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
    """Return the file of a config, with the functions of its custom reader."""
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
    """Load the custom functions of a config whose file is not written yet."""
    words = dict.fromkeys(("what", "machine", "command", "expect", "baseline"), "")
    with tempfile.TemporaryDirectory(prefix="config-") as scratch:
        path = Path(scratch) / f"{config.name}.py"
        path.write_bytes(_rendered(config, reader, comments={}, **words).encode())
        configs.load(str(path))


def _about(baseline: Baseline) -> str:
    """Return the docstring's lines on a baseline."""
    return "\n".join(textwrap.wrap(f"Baseline  {baseline}", LINE, subsequent_indent=" " * 10))


def _different(value: Any) -> list[tuple[str, Any]]:
    """Return names and values of the fields that differ from their defaults."""
    found = []
    for field in dataclasses.fields(value):
        factory, given = field.default_factory, getattr(value, field.name)
        if given != (field.default if factory is dataclasses.MISSING else factory()):
            found.append((field.name, given))
    return found


def literal(value: Any, indent: int = 0, beside: int = 0) -> str:
    """Return a value as Python code: in one line if it fits, otherwise one line per part.

    Args:
        indent: of its line.
        beside: characters before and after it in this line.

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
    """Return the file for --write, which is a name or the path of a .py file.

    Raises:
        ConfigError: if it cannot name a config.
    """
    is_path = name.endswith(".py")
    path = Path(name) if is_path else config_files.CONFIGS / f"{name}.py"
    valid = NAME.fullmatch(path.stem) and not keyword.iskeyword(path.stem)
    if not valid or ("/" in name and not is_path):
        raise ConfigError(
            f"--write {name}: expected a name of lower-case letters, digits and underscores that "
            "starts with a letter, or the path of such a .py file.\nCorrect it."
        )
    return path


def refuse_existing(path: Path) -> None:
    """Raise `ConfigError` unless a new file can be made at this path."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path} exists; expected a new file.\n"
            "Choose another name, or renew only its metric and baseline:\n"
            f"invoke inspect --input DIR --write {path.stem} --metric NAME"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {path.parent}.\n"
            "Make it, or choose another name: --write NAME"
        )


def _slug(name: str) -> str:
    """Return a slug made from a name, or "" if it is too general."""
    slug = name  # a slug already: it keeps its capitals
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}", name):
        slug = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:100].strip("-")
    return slug if len(slug) > 2 and slug.lower() not in GENERAL else ""


def names(folder: Path, path: Path | None, competition: str) -> tuple[str, str]:
    """Return the name of the config and the slug of the competition. What the user did not name
    follows the name of the folder, or else of the file, unless that is too general.

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


# -- a file that exists


class Stated(NamedTuple):
    """Fields of a config, read without running it.

    Attributes:
        competition: its slug.
        assumed: whether `invoke inspect` took the slug from the name of a folder.
        infer_hours: `Config.infer_hours`.
    """

    competition: str
    assumed: bool
    infer_hours: float | None


def stated(config: str = "") -> dict[str, Stated]:
    """Return fields of the configs in pipeline/configs/, by name.

    Configs whose Config(…) does not have a slug as text are left out, except for the named one,
    which is run.

    Raises:
        ConfigError: if there is no config of that name, or if it cannot be run.
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
            continue  # loading it reports what is wrong
        constants = {name: getattr(each.value, "value", None) for name, each in given.items()}
        slug, hours = constants.get("competition"), constants.get("infer_hours")
        if isinstance(slug, str):
            hours = float(hours) if isinstance(hours, int | float) else None
            found[name] = Stated(slug, COMMENTS["competition"] in source, hours)
    return found


def put(name: str, fields: Mapping[str, Any]) -> Path:
    """Edit the file of a config in pipeline/configs/, if there are values, and return its path.

    Raises:
        ConfigError: see `edit`.
    """
    path = config_files.named_files()[name]
    if fields:
        edit(path, configs.load(name), fields)
    return path


def edit(path: Path, before: Config, fields: Mapping[str, Any]) -> None:
    """Set fields in the file of a config. Everything else stays, byte for byte.

    Args:
        path: the file, which holds `before`.

    Raises:
        ConfigError: if the file cannot be edited safely. It is then unchanged, and the message has
            the lines to write.
    """
    try:
        new = edited(path.read_bytes().decode(), before, fields)
        with tempfile.TemporaryDirectory(prefix="config-") as scratch:
            copy = Path(scratch) / f"{before.name}.py"
            copy.write_bytes(new.encode())
            made = configs.load(str(copy))
        if made != replace(before, **fields):
            raise ValueError("the edited text makes a different config")
    except (ValueError, SyntaxError, ConfigError) as error:
        lines = "".join(f"\n{name}={literal(value, -LINE)}," for name, value in fields.items())
        raise ConfigError(
            f"{path} was not changed: {str(error).splitlines()[0]}.\n"
            f"Expected CONFIG = Config(…) with {' and '.join(f'{name}=' for name in fields)}"
            f" written out. Write these lines yourself:{lines}"
        ) from error
    atomic_file.write(path, new.encode())


def edited(text: str, before: Config, fields: Mapping[str, Any]) -> str:
    """Return the text of a config's file with other values of some fields. The caller checks that
    it makes the intended config.

    Args:
        text: Python code with CONFIG = Config(…).
        before: the config. A docstring by `invoke inspect` has its competition and baseline.
        fields: the values, by name.

    Raises:
        ValueError: if there is no such assignment.
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
    """Return the keyword arguments of Config(…) in a config's file."""
    calls = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "CONFIG"
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "Config"
    ]
    if len(calls) != 1:
        raise ValueError("it has no CONFIG = Config(…)")
    return {given.arg: given for given in calls[0].keywords if given.arg}
