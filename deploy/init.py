"""Starts a competition: checks it on Kaggle, and makes its config the default of the tasks.

Reads  the configs in pipeline/configs/, and the competition on Kaggle
Gives  relay.toml, which names the default config of the tasks. Its table [slugs] may set the start
       of the addresses of a competition's notebooks, in place of its slug

Only `invoke inspect` writes configs. This adds to an existing one the competition's slug if it was
assumed, and the hours on the command line. Running it again changes nothing.
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
REHEARSED = "digits"  # the config of the tasks until a competition is started
NAME = re.compile(r"[a-z][a-z0-9_]{0,79}")
SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}")  # such as "leash-BELKA", also where it mounts
PAGE = re.compile(r"(?:https?://)?(?:www\.)?kaggle\.com/(?:competitions|c)/([^/?#]+).*", re.I)
ADDRESS = re.compile(r"[a-z][a-z0-9-]{2,}")  # Kaggle does not find a new notebook at any other
PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
MOST_HOURS = 12  # Kaggle's limit for a notebook with a GPU
LINE = re.compile(r"""^config[ \t]*=[ \t]*(["']).*?\1""", re.MULTILINE)
HEAD = "# The config of every task without --config. Written by: invoke init"


class Stated(NamedTuple):
    """The values of a config.

    Attributes:
        competition: the slug.
        assumed: whether `invoke inspect` took the slug from the name of a folder.
        hours: the competition's limit for a notebook with a GPU; None if it is not set.
    """

    competition: str
    assumed: bool
    hours: float | None


# relay.toml


def default_config(root: Path) -> str:
    """Return the default config of the tasks: that in relay.toml, or "digits".

    Raises:
        UsageError: if the file cannot be read, is invalid, or names a config that does not exist.
    """
    name, names = str(_settings(root).get("config", REHEARSED)), bundle.configs(root)
    if name in names or name == REHEARSED:
        return name
    raise UsageError(
        f"{root / FILE} names the config {name!r}, which does not exist; expected one of:"
        f" {', '.join(names)}.\nCorrect that line, or remove the file."
    )


def slug(root: Path, competition: str) -> str:
    """Return the start of the addresses of a competition's notebooks; "" for its own slug.

    Kaggle does not find a new notebook whose address begins with a digit.

    Raises:
        UsageError: if relay.toml cannot be read, or Kaggle would not find such an address.
    """
    usual = with_letter(competition) if competition[:1].isdigit() else ""
    name = _settings(root).get("slugs", {}).get(competition, usual)
    if name != "" and (not isinstance(name, str) or not ADDRESS.fullmatch(name)):
        raise UsageError(
            f"{root / FILE} has {competition} = {name!r}; expected 3 or more lower-case letters,"
            " digits and hyphens, a letter first: Kaggle does not find other new notebooks.\n"
            f'Correct that line, for example: {competition} = "{with_letter(competition)}"'
        )
    return str(name)


def config_of(root: Path, run: str) -> str:
    """Return the config in pipeline/configs/ of a run in the journal; "" if there is none, or no
    run is named.

    Raises:
        DiskError: if the journal cannot be read.
    """
    journal = root / "runs" / "journal.sqlite"
    if not run or not journal.is_file():
        return ""
    try:
        named = parse(run)
    except UsageError:
        return ""  # `report` also takes a folder; the task reports anything else
    row = Journal(journal).last(PUSH, handle=named.handle, number=named.version)
    return str(row.config) if row and row.config in bundle.configs(root) else ""


def _settings(root: Path) -> dict[str, Any]:
    """Return the content of relay.toml: "config", "slugs", both or nothing."""
    path = root / FILE
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        known = value.keys() <= {"config", "slugs"} and isinstance(value.get("slugs", {}), dict)
        if known and NAME.fullmatch(value.get("config", REHEARSED)):
            return value
        why = f"it contains {value}"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:  # also not UTF-8, or not TOML
        why = str(error)
    raise UsageError(
        f'{path} cannot be used: {why}; expected one line, config = "NAME", and at most a table'
        " [slugs].\nCorrect it, or remove the file."
    )


def named(root: Path) -> str:
    """Return the config in relay.toml, or "". Raises `UsageError` as `slug` does."""
    return str(_settings(root).get("config", ""))


def remember(root: Path, config: str) -> bool:
    """Make a config the default of the tasks, and return whether that changed anything. The rest of
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
    """Make the config of a competition the default, and show the addresses on Kaggle.

    Args:
        root: of the repository.
        competition: Kaggle's slug, or the address of one of its pages.
        configs: in pipeline/configs/, by name.
        put: writes fields into the file of the config with that name, and returns the file.
        config: which config; by default relay.toml's or the only one for the competition, or else
            the only one whose competition was assumed.
        hours: the competition's limit for a notebook with a GPU, which no call returns; None for
            that in the config.
        show: called with lines.

    Returns:
        {"config", "path", "competition", "added": {field: value} written into the config,
        "remembered": whether it has become the default, "handles": {what: handle} on Kaggle,
        "unchecked": why Kaggle was not asked, or ""}.

    Raises:
        UsageError: if a name is not valid, there is no such competition, or it is not clear which
            config is meant. Without a config, the message has the command that makes one.
        Denied: if the competition's rules are not accepted. After an error nothing is written.
        DiskError: if the files cannot be written.
    """
    competition = require_slug(competition, "invoke init --competition SLUG", show)
    stem = slug(root, competition) or competition
    name = chosen(configs, competition, config, named(root))
    owner, about, unchecked = _ask_kaggle(competition, show)
    if not name:
        raise UsageError(
            f"There is no config for the competition {competition!r}; expected one that `invoke"
            " inspect` writes for its data. To download and describe the data:\n"
            f"invoke start {competition}"
        )
    known = configs[name]
    added: dict[str, Any] = {"competition": competition} if known.assumed else {}
    added |= {"infer_hours": hours} if hours not in (None, known.hours) else {}
    path = put(name, added)
    remembered = remember(root, name)
    fields = " and ".join(f"{field}={value!r}" for field, value in added.items())
    show(f"Wrote {fields} into {path}" if added else f"Nothing was changed in {path}")
    show(f"{root / FILE} names {name} as the default")
    if (hours or known.hours) is None and (about is None or not about.takes_files):
        show("If a GPU notebook may run less than 9 hours there, set --infer-hours")
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
    """Return the slug in the address of a competition's page, or any other text unchanged.

    Args:
        show: called with a line if it was an address.

    >>> in_address("https://www.kaggle.com/competitions/digits/overview?tab=code")
    'digits'
    """
    page = PAGE.fullmatch(competition)
    if page is None:
        return competition
    show(f"The competition at that address is {page[1]}")
    return page[1]


def require_slug(
    competition: str, command: str, show: Callable[[str], None] = lambda line: None
) -> str:
    """Return the slug of a competition, from a slug or from the address of one of its pages.

    Args:
        command: the command to type instead, for the message.
        show: called with a line if it was an address.

    Raises:
        UsageError: if it is not a valid slug.
    """
    competition = in_address(competition, show)
    if not SLUG.fullmatch(competition):
        why = f"{competition[:80]!r} is not a slug" if competition else "is missing"
        raise UsageError(
            f"--competition {why}; expected the last part of its address, with the same capitals:"
            f" letters, digits and hyphens.\n{command}"
        )
    return competition


def chosen(
    configs: Mapping[str, Stated], competition: str, config: str = "", default: str = ""
) -> str:
    """Return the config for a competition, or one whose competition was assumed; "" without one.

    Args:
        configs: those to choose from, by name.
        config: the name on the command line, or "".
        default: preferred among several; then the one with the competition's name.

    Raises:
        UsageError: if `config` is for a different competition, or the choice is not clear.
    """
    if config:
        stated = configs.get(config)
        if stated and (stated.competition == competition or stated.assumed):
            return config
        raise UsageError(
            f"--config {config[:80]!r}: expected the name of a config in pipeline/configs/ that is"
            f" for the competition {competition!r}.\nCorrect --config, or write into the config:"
            f' competition="{competition}"'
        )
    fitting = [name for name, stated in configs.items() if stated.competition == competition]
    fitting = fitting or [name for name, stated in configs.items() if stated.assumed]
    for name in (default, competition.lower().replace("-", "_")):
        if name in fitting:
            return name
    if len(fitting) > 1:
        raise UsageError(
            f"Several configs fit the competition {competition!r}: {', '.join(fitting)}; expected"
            " the name of one.\n"
            f"invoke init --competition {competition} --config {fitting[0]}"
        )
    return "".join(fitting)


def _ask_kaggle(
    competition: str, show: Callable[[str], None]
) -> tuple[str, Competition | None, str]:
    """Look at the competition and its rules if there are credentials, and show the result.

    Returns:
        The owner of our notebooks, the competition, and why Kaggle was not asked, or "".
    """
    try:
        auth.require()
        kaggle = Kaggle.connect(pace=PACE, timeouts=TIMEOUTS)
        about = completed(competitions.require(kaggle, competition), lambda event: None)
    except Denied:
        raise
    except (CredentialError, Unreachable) as error:
        # Only reported, since a config does not need Kaggle.
        why = failures.plain(str(error).splitlines()[0].rstrip("."))
        show(f"Could not check whether the competition {competition} exists: {why}.")
        show(f"Accept its rules at {competitions.rules_address(competition)}")
        return auth.look().username or "<you>", None, why
    show(f"The competition {competition} exists, and its rules are accepted")
    show(f"It {competitions.in_words(about)}")
    return kaggle.username, about, ""
