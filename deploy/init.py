"""Set up a competition by checking it on Kaggle and making its config the default for all tasks.

relay.toml stores the default config. Its [slugs] table can replace the competition's slug at the
start of the notebook URLs. Configs are only created by `invoke inspect`. This module completes a
config: it adds the competition's slug if the slug was assumed, and a time limit given on the
command line. Running it twice is safe.
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
REHEARSED = "digits"  # the default config until a competition has been set up
NAME = re.compile(r"[a-z][a-z0-9_]{0,79}")
# Such as "leash-BELKA". Case matters, because mounted folders have the same name.
SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}")
PAGE = re.compile(r"(?:https?://)?(?:www\.)?kaggle\.com/(?:competitions|c)/([^/?#]+).*", re.I)
ADDRESS = re.compile(r"[a-z][a-z0-9-]{2,}")  # Kaggle cannot find new notebooks with other URLs
PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # connect and read timeouts in seconds
MOST_HOURS = 12  # Kaggle's time limit for GPU notebooks
LINE = re.compile(r"""^config[ \t]*=[ \t]*(["']).*?\1""", re.MULTILINE)
HEAD = "# The default config for all tasks without --config. Written by: invoke init"


class Stated(NamedTuple):
    """Values read from a config.

    `assumed` is true if `invoke inspect` derived the slug from a folder name. `hours` is the
    competition's time limit for GPU notebooks, or None if it is not set.
    """

    competition: str
    assumed: bool
    hours: float | None


# relay.toml


def default_config(root: Path) -> str:
    """Return the default config for all tasks, which is "digits" unless relay.toml sets another."""
    name, names = str(_settings(root).get("config", REHEARSED)), bundle.configs(root)
    if name in names or name == REHEARSED:
        return name
    raise UsageError(
        f"{root / FILE} sets the config {name!r}, which does not exist; expected one of:"
        f" {', '.join(names)}.\nCorrect that line, or delete the file."
    )


def slug(root: Path, competition: str) -> str:
    """Return the first part of a competition's notebook URLs, or "" to use the competition's slug.

    Kaggle cannot find new notebooks if their URL starts with a digit.
    """
    usual = with_letter(competition) if competition[:1].isdigit() else ""
    name = _settings(root).get("slugs", {}).get(competition, usual)
    if name != "" and (not isinstance(name, str) or not ADDRESS.fullmatch(name)):
        raise UsageError(
            f"{root / FILE} sets {competition} = {name!r}; expected at least 3 lower-case letters,"
            " digits or hyphens, starting with a letter. Kaggle cannot find new notebooks with any"
            " other name.\n"
            f'Correct that line, for example: {competition} = "{with_letter(competition)}"'
        )
    return str(name)


def config_of(root: Path, run: str) -> str:
    journal = root / "runs" / "journal.sqlite"
    if not run or not journal.is_file():
        return ""
    try:
        named = parse(run)
    except UsageError:
        return ""  # `report` also accepts a folder, and the task reports invalid values
    row = Journal(journal).last(PUSH, handle=named.handle, number=named.version)
    return str(row.config) if row and row.config in bundle.configs(root) else ""


def _settings(root: Path) -> dict[str, Any]:
    path = root / FILE
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        known = value.keys() <= {"config", "slugs"} and isinstance(value.get("slugs", {}), dict)
        if known and NAME.fullmatch(value.get("config", REHEARSED)):
            return value
        why = f"it contains {value}"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:  # includes invalid UTF-8 and invalid TOML
        why = str(error)
    raise UsageError(
        f'{path} is invalid: {why}; expected one line, config = "NAME", and optionally a [slugs]'
        " table.\nCorrect it, or delete the file."
    )


def named(root: Path) -> str:
    return str(_settings(root).get("config", ""))


def remember(root: Path, config: str) -> bool:
    """Make a config the default for all tasks, and return whether relay.toml was modified."""
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
    """Make the competition's config the default, and print its URLs on Kaggle.

    Args:
        competition: slug of the competition, or the URL of one of its pages.
        put: function that writes fields into the config file with a given name, and returns its
            path.
        config: name of the config. The default is the first of these that exists: the one in
            relay.toml, the only config for the competition, the only config whose competition was
            assumed.
        hours: the competition's time limit for GPU notebooks, which the API does not provide, or
            None to keep the config's value.

    Returns:
        A dict with the "config", its "path" and the "competition". "added" contains the fields that
        were added to the config, "remembered" is whether relay.toml was modified, "handles" maps
        names to handles on Kaggle, and "unchecked" is the reason why the competition was not
        checked on Kaggle, or "".

    Raises:
        UsageError: if a name is invalid, the competition does not exist, or not exactly one config
            matches.
        Denied: if the user has not accepted the competition's rules. If an error is raised, nothing
            is written.
    """
    competition = require_slug(competition, "invoke init --competition SLUG", show)
    stem = slug(root, competition) or competition
    name = chosen(configs, competition, config, named(root))
    owner, about, unchecked = _ask_kaggle(competition, show)
    if not name:
        raise UsageError(
            f"There is no config for the competition {competition!r}. `invoke inspect`"
            " creates one. To download and inspect the competition's data, run:\n"
            f"invoke start {competition}"
        )
    known = configs[name]
    added: dict[str, Any] = {"competition": competition} if known.assumed else {}
    added |= {"infer_hours": hours} if hours not in (None, known.hours) else {}
    path = put(name, added)
    remembered = remember(root, name)
    fields = " and ".join(f"{field}={value!r}" for field, value in added.items())
    show(f"Wrote {fields} to {path}" if added else f"{path} is unchanged")
    show(f"{root / FILE} sets {name} as the default config")
    if (hours or known.hours) is None and (about is None or not about.takes_files):
        show("If the limit for GPU notebooks is below 9 hours, set --infer-hours")
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
    """Return the slug from a competition page's URL. Any other text is returned unchanged.

    >>> in_address("https://www.kaggle.com/competitions/digits/overview?tab=code")
    'digits'
    """
    page = PAGE.fullmatch(competition)
    if page is None:
        return competition
    show(f"The competition at that URL is {page[1]}")
    return page[1]


def require_slug(
    competition: str, command: str, show: Callable[[str], None] = lambda line: None
) -> str:
    competition = in_address(competition, show)
    if not SLUG.fullmatch(competition):
        why = f"{competition[:80]!r} is not a slug" if competition else "is missing"
        raise UsageError(
            f"--competition {why}; expected the last part of the competition's URL, which consists"
            f" of letters, digits and hyphens. Case matters.\n{command}"
        )
    return competition


def chosen(
    configs: Mapping[str, Stated], competition: str, config: str = "", default: str = ""
) -> str:
    """Return the name of a config for the competition, or "" if no config matches.

    If no config has this slug, configs whose slug was assumed also count as matches. If several
    configs match, `default` takes precedence, followed by the config named after the competition.
    If neither of them matches, `UsageError` is raised. `config` was given on the command line.
    """
    if config:
        stated = configs.get(config)
        if stated and (stated.competition == competition or stated.assumed):
            return config
        raise UsageError(
            f"--config {config[:80]!r}: expected the name of a config in pipeline/configs/ for the"
            f" competition {competition!r}.\nCorrect --config, or add this line to the config:"
            f' competition="{competition}"'
        )
    fitting = [name for name, stated in configs.items() if stated.competition == competition]
    fitting = fitting or [name for name, stated in configs.items() if stated.assumed]
    for name in (default, competition.lower().replace("-", "_")):
        if name in fitting:
            return name
    if len(fitting) > 1:
        raise UsageError(
            f"Several configs match the competition {competition!r}: {', '.join(fitting)}. Choose"
            " one with --config, for example:\n"
            f"invoke init --competition {competition} --config {fitting[0]}"
        )
    return "".join(fitting)


def _ask_kaggle(
    competition: str, show: Callable[[str], None]
) -> tuple[str, Competition | None, str]:
    """Check that the competition exists and that its rules are accepted, and print the result.

    Returns:
        The name of the user who owns our notebooks, the competition, and an empty string. If Kaggle
        could not be queried, the competition is None, and the last item is the reason.
    """
    try:
        auth.require()
        kaggle = Kaggle.connect(pace=PACE, timeouts=TIMEOUTS)
        about = completed(competitions.require(kaggle, competition), lambda event: None)
    except Denied:
        raise
    except (CredentialError, Unreachable) as error:
        # Only print a warning, because setting up a config does not require Kaggle.
        why = failures.plain(str(error).splitlines()[0].rstrip("."))
        show(f"Could not check that the competition {competition} exists: {why}.")
        show(f"Accept its rules at {competitions.rules_address(competition)}")
        return auth.look().username or "<you>", None, why
    show(f"The competition {competition} exists, and its rules are accepted")
    show(f"It {competitions.in_words(about)}")
    return kaggle.username, about, ""
