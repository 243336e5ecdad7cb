"""The file of a config: written from a template, or edited; what files say without being run."""

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
from workbench.inspect.recipes import CPU, Proposal

LINE = 100  # characters
IMPORT = "from pipeline.config import "
NAME = re.compile(r"[a-z][a-z0-9_]*")
# Names of folders that say nothing of a competition.
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
# Above what nobody gave; each goes when its field is set.
COMMENTS = {
    "metric": "A default: only the competition page has it. `invoke inspect --metric` sets it.",
    "competition": "Assumed: the last part of its address on Kaggle. `invoke init --competition` "
    "sets it.",
}


# -- a new file


def text(found: Inspection, proposal: Proposal, *, given: bool) -> str:
    """Return the file of a config, as `pipeline.config.load` reads it: the values that differ from
    the defaults.

    Args:
        given: somebody gave the competition's slug.
    """
    config, cpu, classes = proposal.config, proposal.plan.machine == CPU, found.target.classes
    command = f"python -m pipeline train --config {config.name} --input DIR --output OUT"
    known = "measured on the machine that wrote this" if cpu else "assumed; not yet run there"
    wanted = f"{len(classes)} labels" if classes else "numbers to predict"
    kind = f"{config.data.kind}, {wanted}"
    default = COMMENTS["metric"]
    if proposal.reader is not None:  # whose metric and baseline are not renewed
        kind, default = proposal.reader.template.replace("_", " "), default.partition(" `")[0]
    comments = {
        "competition": "" if given else COMMENTS["competition"],
        "metric": "" if found.target.sure else default,
        "epochs": f"A start: {proposal.epochs.partition(':')[2].strip()}.",
    }
    return _rendered(
        config,
        proposal.reader,
        what=f"{kind}, {len(found.labels):,} labelled rows",
        machine=proposal.plan.machine,
        command=command if cpu else f"invoke relay --config {config.name}",
        expect=f"training takes about {shown(proposal.seconds)} ({known})",
        baseline=_about(config.baseline) + "\n" if config.baseline else "",
        comments={name: textwrap.wrap(words, LINE - 6) for name, words in comments.items()},
    )


def _rendered(config: Config, reader: Reader | None, **words: Any) -> str:
    """Return the file of a config, with the functions of its reader."""
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
    """Load the functions of a config whose file is not written yet."""
    words = dict.fromkeys(("what", "machine", "command", "expect", "baseline"), "")
    with tempfile.TemporaryDirectory(prefix="config-") as scratch:
        path = Path(scratch) / f"{config.name}.py"
        path.write_bytes(_rendered(config, reader, comments={}, **words).encode())
        configs.load(str(path))


def _about(baseline: Baseline) -> str:
    """Return the lines of a docstring on a baseline."""
    return "\n".join(textwrap.wrap(f"Baseline  {baseline}", LINE, subsequent_indent=" " * 10))


def _different(value: Any) -> list[tuple[str, Any]]:
    """Return name and value of the fields that differ from the defaults."""
    found = []
    for field in dataclasses.fields(value):
        factory, given = field.default_factory, getattr(value, field.name)
        if given != (field.default if factory is dataclasses.MISSING else factory()):
            found.append((field.name, given))
    return found


def literal(value: Any, indent: int = 0, beside: int = 0) -> str:
    """Return a value as Python: in one line, or with a line for each of its parts.

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
    """Return the file that --write means by a name, or by the path of a .py file.

    Raises:
        ConfigError: if it cannot name a config.
    """
    is_path = name.endswith(".py")
    path = Path(name) if is_path else config_files.CONFIGS / f"{name}.py"
    valid = NAME.fullmatch(path.stem) and not keyword.iskeyword(path.stem)
    if not valid or ("/" in name and not is_path):
        raise ConfigError(
            f"--write {name}: expected a name of lower-case letters, digits and underscores that "
            "begins with a letter, or the path of such a .py file.\nCorrect it."
        )
    return path


def refuse_existing(path: Path) -> None:
    """Raise a `ConfigError` unless a new file can be made at this path."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path} exists; expected a new file, and this one stays as it is.\n"
            "Give another name, or renew its metric and baseline alone:\n"
            f"invoke inspect --input DIR --write {path.stem} --metric NAME"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {path.parent}; expected one.\n"
            "Make it, or give another name: --write NAME"
        )


def _slug(name: str) -> str:
    """Return a slug after a name; "" if the name says nothing."""
    slug = name  # of a folder that is called as the competition: its mount keeps the capitals
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}", name):
        slug = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:100].strip("-")
    return slug if len(slug) > 2 and slug.lower() not in GENERAL else ""


def names(folder: Path, path: Path | None, competition: str) -> tuple[str, str]:
    """Return the name of the config and the slug of the competition: as given, or after the folder
    and the file, unless they have a name that many folders have.

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
    """What the text of a config says, without running it.

    Attributes:
        competition: its slug.
        assumed: `invoke inspect` took the slug from the name of a folder.
        infer_hours: as `Config.infer_hours`.
    """

    competition: str
    assumed: bool
    infer_hours: float | None


def stated(config: str = "") -> dict[str, Stated]:
    """Return what the configs in pipeline/configs/ say, by name, without those that write no slug
    into their Config(…), but for the one that is named: it is run.

    Raises:
        ConfigError: if there is no config of that name, or it cannot be run.
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
            continue  # what loads it says what is wrong
        constants = {name: getattr(each.value, "value", None) for name, each in given.items()}
        slug, hours = constants.get("competition"), constants.get("infer_hours")
        if isinstance(slug, str):
            hours = float(hours) if isinstance(hours, int | float) else None
            found[name] = Stated(slug, COMMENTS["competition"] in source, hours)
    return found


def put(name: str, fields: Mapping[str, Any]) -> Path:
    """Put values into the file of a config in pipeline/configs/, if any, and return the file.

    Raises:
        ConfigError: as `edit` does.
    """
    path = config_files.named_files()[name]
    if fields:
        edit(path, configs.load(name), fields)
    return path


def edit(path: Path, before: Config, fields: Mapping[str, Any]) -> None:
    """Put values of fields into the file of a config; all else in it stays, byte for byte.

    Args:
        path: the file, which holds `before`.

    Raises:
        ConfigError: if the file cannot be edited safely; it is then as it was. The message has
            what to write.
    """
    try:
        new = edited(path.read_bytes().decode(), before, fields)
        with tempfile.TemporaryDirectory(prefix="config-") as scratch:
            copy = Path(scratch) / f"{before.name}.py"
            copy.write_bytes(new.encode())
            made = configs.load(str(copy))
        if made != replace(before, **fields):
            raise ValueError("the new text makes another config")
    except (ValueError, SyntaxError, ConfigError) as error:
        lines = "".join(f"\n{name}={literal(value, -LINE)}," for name, value in fields.items())
        raise ConfigError(
            f"{path} stays as it is: {str(error).splitlines()[0]}.\n"
            f"Expected CONFIG = Config(…) with {' and '.join(f'{name}=' for name in fields)}"
            f" written there. Write yourself:{lines}"
        ) from error
    atomic_file.write(path, new.encode())


def edited(text: str, before: Config, fields: Mapping[str, Any]) -> str:
    """Return the text of a config's file with other values of some fields. Who calls it looks
    whether the text makes the config that is meant.

    Args:
        text: Python with CONFIG = Config(…).
        before: the config, of which competition and baseline the docstring may speak, as `invoke
            inspect` wrote it.
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
    """Return the arguments of the Config(…) of a config's file, which are all written out."""
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
