"""Begin a competition: make its config the default of the tasks, and check what Kaggle says of it.

Reads  what the configs in pipeline/configs/ say, and what Kaggle says of the competition
Gives  relay.toml, which names the default config of the tasks. Its table [slugs] may say what the
       addresses of a competition's notebooks begin with, if not with its own slug

`invoke inspect` alone writes configs. Into one that exists go the competition's slug, where it was
assumed, and the hours that were given. The same command again changes nothing.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deploy import auth, bundle, failures
from deploy import competition as competitions
from deploy.calls import Competition
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import CredentialError, Denied, Unreachable, UsageError
from deploy.events import completed
from deploy.journal import PUSH, Journal
from deploy.project import INFER, TRAIN, with_letter
from deploy.runs import parse
from formats import atomic_file

FILE = "relay.toml"
REHEARSED = "digits"  # the config of the tasks until a competition is begun
NAME = re.compile(r"[a-z][a-z0-9_]{0,79}")
SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}")  # as "leash-BELKA"; its mount keeps the case
PAGE = re.compile(r"(?:https?://)?(?:www\.)?kaggle\.com/(?:competitions|c)/([^/?#]+).*", re.I)
ADDRESS = re.compile(r"[a-z][a-z0-9-]{2,}")  # Kaggle finds no new notebook that begins otherwise
PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
MOST_HOURS = 12  # that Kaggle gives a notebook with a GPU
LINE = re.compile(r"""^config[ \t]*=[ \t]*(["']).*?\1""", re.MULTILINE)
HEAD = "# The config of every task that is given no --config. Written by: invoke init"


class Stated(NamedTuple):
    """What a config says.

    Attributes:
        competition: its slug.
        assumed: nobody gave the slug; `invoke inspect` took the name of a folder.
        hours: that the competition gives a notebook with a GPU; None: it says nothing of it.
    """

    competition: str
    assumed: bool
    hours: float | None


# relay.toml


def default_config(root: Path) -> str:
    """Return the default config of the tasks: that of relay.toml, or "digits" if it names none.

    Raises:
        UsageError: if the file cannot be read, holds something else, or names a config that does
            not exist.
    """
    name, names = str(_settings(root).get("config", REHEARSED)), bundle.configs(root)
    if name in names or name == REHEARSED:
        return name
    raise UsageError(
        f"{root / FILE} names the config {name!r}, which does not exist; expected one of:"
        f" {', '.join(names)}.\nCorrect that line, or remove the file."
    )


def slug(root: Path, competition: str) -> str:
    """Return what the addresses of a competition's notebooks begin with; "": its own slug.

    Kaggle finds no new notebook whose address begins with a digit.

    Raises:
        UsageError: if relay.toml cannot be read, or Kaggle would not find such an address.
    """
    usual = with_letter(competition) if competition[:1].isdigit() else ""
    name = _settings(root).get("slugs", {}).get(competition, usual)
    if name != "" and (not isinstance(name, str) or not ADDRESS.fullmatch(name)):
        raise UsageError(
            f"{root / FILE} says {competition} = {name!r}; expected 3 or more lower-case letters,"
            " digits and hyphens, a letter first: Kaggle finds no other new notebook.\n"
            f'Correct that line, as {competition} = "{with_letter(competition)}"'
        )
    return str(name)


def config_of(root: Path, run: str) -> str:
    """Return the config in pipeline/configs/ with which a run was pushed, as the journal has it; ""
    if it has none, or no run is named.

    Raises:
        DiskError: if there is a journal that cannot be read.
    """
    journal = root / "runs" / "journal.sqlite"
    if not run or not journal.is_file():
        return ""
    try:
        named = parse(run)
    except UsageError:
        return ""  # `report` takes a folder, too; of anything else the task says it
    row = Journal(journal).last(PUSH, handle=named.handle, number=named.version)
    return str(row.config) if row and row.config in bundle.configs(root) else ""


def _settings(root: Path) -> dict[str, Any]:
    """Return what relay.toml holds: "config", "slugs", both or nothing."""
    path = root / FILE
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        known = value.keys() <= {"config", "slugs"} and isinstance(value.get("slugs", {}), dict)
        if known and NAME.fullmatch(value.get("config", REHEARSED)):
            return value
        why = f"it holds {value}"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:  # what is not UTF-8, or not TOML
        why = str(error)
    raise UsageError(
        f'{path} cannot be used: {why}; expected one line, config = "NAME", and perhaps a table'
        " [slugs].\nCorrect it, or remove the file."
    )


def named(root: Path) -> str:
    """Return the config that relay.toml names, "" if none. Raises `UsageError` as `slug` does."""
    return str(_settings(root).get("config", ""))


def remember(root: Path, config: str) -> bool:
    """Make a config the default of the tasks, and return whether it was not before. All else in
    relay.toml stays.

    Raises:
        UsageError: if relay.toml cannot be read.
        DiskError: if it cannot be written.
    """
    if config == named(root):
        return False
    path, line = root / FILE, f'config = "{config}"'
    before = path.read_text("utf-8") if path.exists() else ""
    text, found = LINE.subn(line, before, count=1)
    text = text if found else f"{HEAD}\n{line}\n\n{before}".rstrip("\n") + "\n"
    atomic_file.write(path, text.encode())
    return True


# The competition


def begin(
    root: Path,
    competition: str,
    configs: Mapping[str, Stated],
    put: Callable[[str, Mapping[str, Any]], Path],
    *,
    config: str = "",
    hours: float | None = None,
    show: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Make the config of a competition the default, and say what will be used on Kaggle.

    Args:
        root: of the repository.
        competition: Kaggle's slug, or an address of one of its pages.
        configs: in pipeline/configs/, by name.
        put: puts fields into the file of the config of that name, and returns the file.
        config: which of them; default: relay.toml's or the only one that is for the competition, or
            else the only one whose competition was assumed.
        hours: that the competition gives a notebook with a GPU, which no call tells; None: those in
            the config.
        show: is called with one line each.

    Returns:
        {"config", "path", "competition", "added": {field: value} that were put into the config,
        "remembered": whether it was not the default before, "handles": {what: handle} that will be
        used on Kaggle, "unchecked": why Kaggle was not asked; "": it was}.

    Raises:
        UsageError: if a name cannot work, Kaggle knows no such competition, or it is not clear
            which config is meant. If there is none, the message has the commands that make one,
            and the lines say what Kaggle says.
        Denied: if the competition's rules are not accepted. Nothing is written then, as after any
            other error.
        DiskError: if the files cannot be written.
    """
    competition = require_slug(competition, "invoke init --competition SLUG", show)
    stem = slug(root, competition) or competition
    name = chosen(configs, competition, config, named(root))
    owner, about, unchecked = _ask_kaggle(competition, show)
    if not name:
        raise UsageError(
            f"No config is for the competition {competition!r}; expected one that `invoke inspect`"
            " writes for its data. To download and describe them:\n"
            f"invoke start {competition}"
        )
    known = configs[name]
    added: dict[str, Any] = {"competition": competition} if known.assumed else {}
    added |= {"infer_hours": hours} if hours not in (None, known.hours) else {}
    path = put(name, added)
    remembered = remember(root, name)
    fields = " and ".join(f"{field}={value!r}" for field, value in added.items())
    show(f"Put {fields} into {path}" if added else f"Nothing was changed in {path}")
    show(f"{root / FILE} names {name} as the default")
    if (hours or known.hours) is None and (about is None or not about.takes_files):
        show("If a GPU notebook may run less than 9 hours there, say so with --infer-hours")
    handles = {kernel: bundle.address(owner, stem, kernel) for kernel in (TRAIN, INFER)}
    handles["artifact"] = bundle.address(owner, competition, "artifact")
    for what, handle in handles.items():
        show(f"{what:12}{handle}")
    show("Next: invoke doctor")
    return {
        "config": name,
        "path": str(path),
        "competition": competition,
        "added": added,
        "remembered": remembered,
        "handles": handles,
        "unchecked": unchecked,
    }


def in_address(competition: str, show: Callable[[str], None] = lambda line: None) -> str:
    """Return the slug in the address of a competition's page, or else what was given.

    Args:
        show: is given a line if it was an address.

    >>> in_address("https://www.kaggle.com/competitions/digits/overview?tab=code")
    'digits'
    """
    page = PAGE.fullmatch(competition)
    if page is None:
        return competition
    show(f"The competition of that address is {page[1]}")
    return page[1]


def require_slug(
    competition: str, command: str, show: Callable[[str], None] = lambda line: None
) -> str:
    """Return the slug of a competition; what was given may be an address of one of its pages.

    Args:
        command: that takes one.
        show: is given a line if it was an address.

    Raises:
        UsageError: if it cannot be one.
    """
    competition = in_address(competition, show)
    if not SLUG.fullmatch(competition):
        given = f"{competition[:80]!r} is not a slug" if competition else "is missing"
        raise UsageError(
            f"--competition {given}; expected the last part of its address, capitals as there:"
            f" letters, digits and hyphens.\n{command}"
        )
    return competition


def chosen(
    configs: Mapping[str, Stated], competition: str, config: str = "", default: str = ""
) -> str:
    """Return the config that is for a competition, or can be; "" if there is none.

    Args:
        configs: those to choose from, by name.
        config: that was named; "": none.
        default: is taken of several, else the one that is called like the competition.

    Raises:
        UsageError: if the named one is for another competition, or none of several is the default.
    """
    if config:
        said = configs.get(config)
        if said and (said.competition == competition or said.assumed):
            return config
        raise UsageError(
            f"--config {config[:80]!r}: expected the name of a config in pipeline/configs/ that is"
            f" for the competition {competition!r}.\nCorrect --config, or write into the config:"
            f' competition="{competition}"'
        )
    fitting = [name for name, said in configs.items() if said.competition == competition]
    fitting = fitting or [name for name, said in configs.items() if said.assumed]
    for name in (default, competition.lower().replace("-", "_")):
        if name in fitting:
            return name
    if len(fitting) > 1:
        raise UsageError(
            f"Several configs can be for the competition {competition!r}: {', '.join(fitting)};"
            " expected the name of one.\n"
            f"invoke init --competition {competition} --config {fitting[0]}"
        )
    return "".join(fitting)


def _ask_kaggle(
    competition: str, show: Callable[[str], None]
) -> tuple[str, Competition | None, str]:
    """Ask for the competition and its rules, if there are credentials, and show what is so.

    Returns:
        The owner of what will be made, what Kaggle says of the competition, and why it was not
        asked; "": it was.
    """
    try:
        auth.require()
        kaggle = Kaggle.connect(pace=PACE, timeouts=TIMEOUTS)
        about = completed(competitions.require(kaggle, competition), lambda event: None)
    except Denied:
        raise
    except (CredentialError, Unreachable) as error:
        # A config needs no Kaggle: what is wrong there is only reported.
        why = failures.plain(str(error).splitlines()[0].rstrip("."))
        show(f"Not checked whether the competition {competition} exists: {why}.")
        show(f"Accept its rules at {competitions.rules_address(competition)}")
        return auth.look().username or "<you>", None, why
    show(f"The competition {competition} exists, and its rules are accepted")
    show(f"It {competitions.in_words(about)}")
    return kaggle.username, about, ""
