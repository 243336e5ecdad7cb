"""Make the template a competitor's own.

Reads  pipeline/configs/digits.py, as text, and what Kaggle says of the competition
Gives  pipeline/configs/<name>.py, and relay.toml, which names the default config of the tasks, and
what the addresses of a competition's notebooks begin with, if not with its own slug

An existing config is never overwritten. The same command again changes nothing.
"""

import ast
import keyword
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.bundle import bundle
from deploy.client import credential_lookup, failure_messages
from deploy.client.client import Kaggle
from deploy.client.responses import Competition
from deploy.client.retries import Pace
from deploy.errors import CredentialError, Denied, Unreachable, UsageError, writing
from deploy.kernel.push_and_watch import Show
from deploy.project import INFER, TRAIN, with_letter
from deploy.relay import competition_rules

FILE = "relay.toml"
TEMPLATE = "digits"
NAME = re.compile(r"[a-z][a-z0-9_]{0,79}")
SLUG = re.compile(r"[a-z0-9][a-z0-9-]{2,49}")
ADDRESS = re.compile(r"[a-z][a-z0-9-]{2,49}")  # Kaggle finds no new notebook that begins otherwise
PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
MOST_HOURS = 12  # that Kaggle gives a notebook with a GPU
# What a newcomer edits: a comment for above each argument.
COMMENTS = {
    "infer_hours": "Hours that the competition gives a notebook with a GPU: its Code Requirements.",
    "num_classes": "How many classes there are.",
    "data": "Size and channels (1 grey, 3 colour) of the images. More: Data in"
    " pipeline/config/config.py.",
    "model": "A function of pipeline/models/architectures.py, and its arguments.",
    "batch": "Images a step over all cores, which sets the learning rate, and passes over them.",
}
DOC = '''"""{competition}: say here what the images are, how many, and what is scored.

Command   invoke relay --config {name}
Expect    not yet run; write here what it gave
"""'''
DEFAULT = """# The config of every task that is given no --config. Written by: invoke init
config = "{name}"
"""
SLUGS = """
# What the addresses of a competition's notebooks begin with, in place of its own slug.
[slugs]
"""


@dataclass(frozen=True)
class Started:
    """What `begin` made or found.

    Attributes:
        created: the config is new.
        remembered: it was not the default before.
        handles: what will be used on Kaggle, by what it is.
        checked: whether Kaggle was asked for the competition and its rules.
        unchecked: why not.
    """

    config: str
    path: Path
    competition: str
    created: bool
    remembered: bool
    handles: Mapping[str, str]
    checked: bool
    unchecked: str

    def values(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes."""
        return {**vars(self), "path": str(self.path), "handles": dict(self.handles)}


def default_config(root: Path) -> str:
    """Return the default config of the tasks: that of relay.toml, or "digits" without the file.

    Raises:
        UsageError: if the file cannot be read, holds something else, or names a config that does
            not exist.
    """
    name = _default(root)
    if name is None:
        return TEMPLATE
    path = _config(root, name)
    if not path.is_file():
        names = ", ".join(sorted(other.stem for other in path.parent.glob("[!_.]*.py")))
        raise UsageError(
            f"{root / FILE} names the config {name!r}, which does not exist; expected one of:"
            f" {names}.\nCorrect that line, or remove the file."
        )
    return name


def begin(
    root: Path,
    competition: str,
    *,
    config: str = "",
    user: str = "",
    hours: float | None = None,
    ask: Callable[[str], str] | None = None,
    show: Show = lambda line: None,
) -> Started:
    """Write the config of a competition, make it the default, and say what will be used on Kaggle.

    Args:
        root: of the repository.
        competition: Kaggle's slug.
        config: the new config's name; default: the slug with underscores.
        user: owner of the handles, if no credentials say it; otherwise it must be theirs.
        hours: that the competition gives a notebook with a GPU; None: those of a config that is
            there, or what `ask` answers.
        ask: asks a person for what no call tells; None: there is nobody.
        show: is called with one line each.

    Raises:
        UsageError: if a name cannot work, an answer is no number, Kaggle knows no such
            competition, or there is another config of that name.
        Denied: if the competition's rules are not accepted. Nothing is written then, as after any
            other error.
        DiskError: if the files cannot be written.
    """
    name = _name(competition, config)
    if user and not re.fullmatch(r"[A-Za-z0-9_-]{1,50}", user):
        raise UsageError(
            f"--user {user[:80]!r} is not a Kaggle user; expected the name in your profile's"
            " address.\nCorrect it."
        )
    path = _config(root, name)
    hours = _hours(path) if hours is None else hours
    text = _text(_config(root, TEMPLATE), name, competition, hours)
    created, remembered = not _exists(path, text), _default(root) != name
    slugs = _slugs(root)
    if created and competition[0].isdigit():  # else its notebooks may be at their addresses already
        slugs.setdefault(competition, with_letter(competition))
    owner, unchecked, about = _look(competition, user)
    takes_notebooks = about is None or not about.takes_files
    if created and hours is None and takes_notebooks and ask is not None:
        hours = _asked(ask, competition)
        text = _text(_config(root, TEMPLATE), name, competition, hours)
    if created:
        _write(path, text)
    if remembered or slugs != _slugs(root):
        lines = [f'{one} = "{slug}"\n' for one, slug in slugs.items()]
        _write(
            root / FILE, "".join([DEFAULT.format(name=name), *([SLUGS, *lines] if lines else [])])
        )

    stem = slugs.get(competition, competition)
    handles = {kernel: bundle.kernel_handle(owner, stem, kernel) for kernel in (TRAIN, INFER)}
    handles["artifact"] = bundle.dataset_handle(owner, competition)
    show(f"{'Wrote' if created else 'Nothing was changed in'} {path}")
    show(f"{root / FILE} {'now names' if remembered else 'already names'} it as the default")
    if unchecked:
        show(
            "Not checked: whether the competition exists and its rules are accepted, because"
            f" {unchecked}."
        )
        show(f"Accept the rules at {competition_rules.rules_address(competition)}")
    elif about is not None:
        show(f"The competition {competition} exists, and its rules are accepted")
        show(f"It {competition_rules.in_words(about)}")
    if takes_notebooks and hours is None:
        show(f"How long a GPU notebook may run is not known: see {_requirements(competition)}")
        show("If that is less than 9 hours, write it into the config, as infer_hours=2.0")
    for what, handle in handles.items():
        show(f"{what:12}{handle}")
    show(f"Next: describe the images in {path.relative_to(root)}, then: invoke doctor")
    return Started(name, path, competition, created, remembered, handles, not unchecked, unchecked)


def slug(root: Path, competition: str) -> str:
    """Return what the addresses of a competition's notebooks begin with; "": its own slug.

    Raises:
        UsageError: if relay.toml cannot be read, or Kaggle would not find such an address.
    """
    return _slugs(root).get(competition, "")


def _config(root: Path, name: str) -> Path:
    return root / "pipeline" / "configs" / f"{name}.py"


def _default(root: Path) -> str | None:
    """Return the config that relay.toml names, whether it exists or not; None if it names none."""
    value = _settings(root)
    name = value.get("config")
    if name is None:
        return None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise _not_settings(root, value)
    return name


def _slugs(root: Path) -> dict[str, str]:
    """Return {competition: what its notebooks' addresses begin with}, as relay.toml says."""
    value = _settings(root)
    slugs = value.get("slugs", {})
    if not isinstance(slugs, dict):
        raise _not_settings(root, value)
    for competition, slug in slugs.items():
        if not isinstance(slug, str) or not ADDRESS.fullmatch(slug):
            raise UsageError(
                f"{root / FILE} says {competition} = {slug!r}; expected 3 to 50 lower-case letters,"
                " digits and hyphens, a letter first: Kaggle finds no new notebook whose address"
                ' begins with a digit ("Notebook not found").\nCorrect that line, as'
                f' {competition} = "{with_letter(competition)}"'
            )
    return dict(slugs)


def _settings(root: Path) -> dict[str, Any]:
    """Return what relay.toml holds; {} without the file."""
    path = root / FILE
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # what is not UTF-8 or not TOML is a ValueError
        raise UsageError(
            f'{path} cannot be read: {error}.\nExpected one line, config = "NAME". Correct it, or'
            " remove the file."
        ) from error
    if not value or set(value) - {"config", "slugs"}:
        raise _not_settings(root, value)
    return value


def _not_settings(root: Path, value: Mapping[str, Any]) -> UsageError:
    return UsageError(
        f'{root / FILE} holds {value}; expected one line, config = "NAME", and perhaps a table'
        " [slugs].\nCorrect it, or remove the file."
    )


def _name(competition: str, config: str) -> str:
    """Return the config's name; raise `UsageError` unless both names can work."""
    if not SLUG.fullmatch(competition):
        last = competition.rstrip("/").rpartition("/")[2].lower()
        hint = f"Try: --competition {last}" if SLUG.fullmatch(last) else "Correct it."
        given = f"{competition[:80]!r} is not a slug"
        if not competition:
            given, hint = "is missing", "invoke init --competition SLUG"
        raise UsageError(
            f"--competition {given}; expected the last part of the competition's address: 3 to 50"
            f" lower-case letters, digits and hyphens.\n{hint}"
        )
    name = config or competition.replace("-", "_")
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        proposal = f"my_{re.sub(r'[^a-z0-9_]', '_', name.lower())[:40]}"
        raise UsageError(
            f"--config {name[:80]!r} cannot name a Python module; expected a lower-case letter,"
            f" then such letters, digits and underscores.\nGive another one: --config {proposal}"
        )
    if name == TEMPLATE:
        raise UsageError(
            f"--config {TEMPLATE} is the rehearsal's; expected another name.\n"
            f"Give another one: --config my_{TEMPLATE}"
        )
    return name


def _text(template: Path, name: str, competition: str, hours: float | None) -> str:
    """Return the template's text with both names and the hours, a new docstring, and comments on
    what to edit.
    """
    try:
        text = template.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError) as error:
        raise UsageError(
            f"{template} cannot be read: {error}.\nExpected the template of a config. Restore it:"
            f"\ngit checkout {shlex.quote(str(template))}"
        ) from error
    calls = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    ]
    arguments = {word.arg: word.value for call in calls[-1:] for word in call.keywords if word.arg}
    lines = text.splitlines()
    for argument, value in {"name": name, "competition": competition}.items():
        node = arguments.get(argument)
        if not isinstance(node, ast.Constant) or not re.fullmatch(
            rf'\s+{argument}="[^"]*",', lines[node.lineno - 1]
        ):
            raise UsageError(
                f'{template} has no line {argument}="…", to set; expected one in CONFIG ='
                f" Config(…). Restore it:\ngit checkout {shlex.quote(str(template))}"
            )
        lines[node.lineno - 1] = f'    {argument}="{value}",'
    after = arguments["competition"].lineno
    places = {arguments[name].lineno - 1: COMMENTS[name] for name in COMMENTS if name in arguments}
    for line in sorted(places, reverse=True):
        if not lines[line - 1].lstrip().startswith("#"):
            lines.insert(line, f"    # {places[line]}")
    if hours is not None:  # behind the competition's name, above which nothing was inserted
        lines[after:after] = [f"    # {COMMENTS['infer_hours']}", f"    infer_hours={hours!r},"]
    has_docstring = ast.get_docstring(tree, clean=False) is not None
    code = lines[tree.body[0].end_lineno :] if has_docstring else lines
    return "\n".join([DOC.format(name=name, competition=competition), *code]) + "\n"


def _exists(path: Path, text: str) -> bool:
    """Return whether this very config exists; raise `UsageError` if another of its name does."""
    try:
        held = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        held = ""
    if held == text:
        return True
    raise UsageError(
        f"{path} exists, and was edited or is another competition's; expected no such file. It"
        " stays as it is.\n"
        f'To make it the default, write into {FILE}:  config = "{path.stem}"\n'
        "To start over, move it away, or give another name: --config NAME"
    )


def _hours(path: Path) -> float | None:
    """Return the hours that an earlier `init` wrote into this config; None if it wrote none."""
    try:
        held = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    found = re.search(r"^    infer_hours=([0-9.]+),$", held, re.MULTILINE)
    return float(found[1]) if found else None


def _asked(ask: Callable[[str], str], competition: str) -> float | None:
    """Return the hours that a person answers; None without an answer."""
    answer = ask(
        f"How many hours may a notebook with a GPU run? See {_requirements(competition)}\n"
        "Hours (Enter if it does not say):"
    )
    try:
        hours = float(answer) if answer else None
    except ValueError:
        hours = 0.0
    if hours is not None and not 0 < hours <= MOST_HOURS:
        found = f"{answer[:40]!r} is no number of hours; expected one up to {MOST_HOURS}, as 0.5."
        raise UsageError(f"{found}\nNothing was written. Run the same command again.")
    return hours


def _requirements(competition: str) -> str:
    """Return the page that says how long a notebook may run."""
    return f"https://www.kaggle.com/competitions/{competition}/overview/code-requirements"


def _look(competition: str, user: str) -> tuple[str, str, Competition | None]:
    """Return the owner of what will be made, why Kaggle was not asked, and what it then said."""
    found = credential_lookup.look()
    owner = user or found.username or "<you>"
    if not found.sources:
        problems = "; ".join(what for what, _ in found.problems)
        return owner, problems or "there are no Kaggle credentials", None
    try:
        kaggle = Kaggle.connect(pace=PACE, timeouts=TIMEOUTS)
        if user and user != kaggle.username:
            raise UsageError(
                f"--user {user}: the credentials are {kaggle.username}'s; expected the same user.\n"
                "Leave --user out, or log in as the other."
            )
        about = competition_rules.require(kaggle, competition)
        return kaggle.username, "", about
    except Denied:
        raise
    except (CredentialError, Unreachable) as error:
        # A config needs no Kaggle: what is wrong there is only reported.
        return owner, failure_messages.plain(str(error).splitlines()[0].rstrip(".")), None


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with writing(path):
        try:
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
