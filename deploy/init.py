"""Begin a competition: make its config the default of the tasks, and check what Kaggle says of it.

Reads  what the configs in pipeline/configs/ say, and what Kaggle says of the competition
Gives  relay.toml, which names the default config of the tasks, and what the addresses of a
competition's notebooks begin with, if not with its own slug

`invoke inspect` alone writes configs. Into one that exists go the competition's slug, where it was
assumed, and the hours that were asked for. The same command again changes nothing.
"""

import keyword
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from deploy import bundle, competition_rules, credential_lookup, failure_messages, push_and_watch
from deploy.client import Kaggle
from deploy.errors import CredentialError, Denied, Unreachable, UsageError
from deploy.journal import Journal
from deploy.project import INFER, TRAIN, with_letter
from deploy.push_and_watch import Show
from deploy.responses import Competition
from deploy.retries import Pace
from formats.errors import writing

FILE = "relay.toml"
REHEARSED = "digits"  # the config of the tasks until a competition is begun
NAME = re.compile(r"[a-z][a-z0-9_]{0,79}")
SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}")  # as "leash-BELKA"; its mount keeps the case
PAGE = re.compile(r"(?:https?://)?(?:www\.)?kaggle\.com/(?:competitions|c)/([^/?#]+).*", re.I)
ADDRESS = re.compile(r"[a-z][a-z0-9-]{2,}")  # Kaggle finds no new notebook that begins otherwise
PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
MOST_HOURS = 12  # that Kaggle gives a notebook with a GPU
DEFAULT = """# The config of every task that is given no --config. Written by: invoke init
config = "{name}"
"""
SLUGS = """
# What the addresses of a competition's notebooks begin with, in place of its own slug.
[slugs]
"""


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


@dataclass(frozen=True)
class Started:
    """What `begin` made or found.

    Attributes:
        added: what was put into the config: fields and their values.
        remembered: it was not the default before.
        handles: what will be used on Kaggle, by what it is.
        checked: whether Kaggle was asked for the competition and its rules.
        unchecked: why not.
    """

    config: str
    path: Path
    competition: str
    added: Mapping[str, Any]
    remembered: bool
    handles: Mapping[str, str]
    checked: bool
    unchecked: str

    def values(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes."""
        values = {**vars(self), "path": str(self.path)}
        return values | {"handles": dict(self.handles), "added": dict(self.added)}


def default_config(root: Path) -> str:
    """Return the default config of the tasks: that of relay.toml, or "digits" without the file.

    Raises:
        UsageError: if the file cannot be read, holds something else, or names a config that does
            not exist.
    """
    name = _default(root)
    if name is None:
        return REHEARSED
    if not _is_config(root, name):
        folder = root / "pipeline" / "configs"
        names = ", ".join(sorted(other.stem for other in folder.glob("[!_.]*.py")))
        raise UsageError(
            f"{root / FILE} names the config {name!r}, which does not exist; expected one of:"
            f" {names}.\nCorrect that line, or remove the file."
        )
    return name


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
        named = push_and_watch.parse(run)
    except UsageError:
        return ""  # `report` takes a folder, too; of anything else the task says it
    row = Journal(journal).last("pushes", handle=named.handle, version=named.version)
    return str(row["config"]) if row and _is_config(root, row["config"]) else ""


def _is_config(root: Path, name: str) -> bool:
    folder = root / "pipeline" / "configs"
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def begin(
    root: Path,
    competition: str,
    configs: Mapping[str, Stated],
    put: Callable[[str, Mapping[str, Any]], Path],
    *,
    config: str = "",
    user: str = "",
    hours: float | None = None,
    ask: Callable[[str], str] | None = None,
    show: Show = lambda line: None,
) -> Started:
    """Make the config of a competition the default, and say what will be used on Kaggle.

    Args:
        root: of the repository.
        competition: Kaggle's slug, or an address of one of its pages.
        configs: in pipeline/configs/, by name.
        put: puts fields into the file of the config of that name, and returns the file.
        config: which of them; default: relay.toml's or the only one that is for the competition, or
            else the only one whose competition was assumed.
        user: owner of the handles, if no credentials say it; otherwise it must be theirs.
        hours: that the competition gives a notebook with a GPU; None: those in the config, or what
            `ask` answers.
        ask: asks a person for what no call tells; None: there is nobody.
        show: is called with one line each.

    Raises:
        UsageError: if a name cannot work, an answer is no number, Kaggle knows no such
            competition, or it is not clear which config is meant. If there is none, the message
            has the commands that make one, and the lines say what Kaggle says.
        Denied: if the competition's rules are not accepted. Nothing is written then, as after any
            other error.
        DiskError: if the files cannot be written.
    """
    competition = in_address(competition, show)
    _require_slug(competition)
    if user and not re.fullmatch(r"[A-Za-z0-9_-]{1,50}", user):
        raise UsageError(
            f"--user {user[:80]!r} is not a Kaggle user; expected the name in your profile's"
            " address.\nCorrect it."
        )
    before, slugs = _default(root), _slugs(root)
    name = _chosen(configs, competition, config, before)
    if name != before and competition[0].isdigit():  # else its notebooks may be there already
        slugs.setdefault(competition, with_letter(competition))
    owner, unchecked, about = _look(competition, user)
    takes_notebooks = about is None or not about.takes_files
    added: dict[str, Any] = {}
    path = root / FILE
    if name:
        known = configs[name]
        if known.assumed:
            added["competition"] = competition
        if hours is None and known.hours is None and takes_notebooks and ask is not None:
            hours = _asked(ask, competition)
        hours = known.hours if hours is None else hours
        if hours != known.hours:
            added["infer_hours"] = hours
        path = put(name, added)
        if name != before or slugs != _slugs(root):
            _write(root / FILE, _settings_text(root, name, slugs))
        said = " and ".join(f"{field}={value!r}" for field, value in added.items())
        if known.competition != competition:
            said += f" (the competition was assumed: {known.competition!r})"
        show(f"Put {said} into {path}" if added else f"Nothing was changed in {path}")
        already = "now" if name != before else "already"
        show(f"{root / FILE} {already} names {name} as the default")

    stem = slugs.get(competition, competition)
    handles = {kernel: bundle.kernel_handle(owner, stem, kernel) for kernel in (TRAIN, INFER)}
    handles["artifact"] = bundle.dataset_handle(owner, competition)
    if unchecked:
        show(
            "Not checked: whether the competition exists and its rules are accepted, because"
            f" {unchecked}."
        )
        show(f"Accept the rules at {competition_rules.rules_address(competition)}")
    elif about is not None:
        show(f"The competition {competition} exists, and its rules are accepted")
        show(f"It {competition_rules.in_words(about)}")
    if not name:
        raise _without_config(competition, configs, hours)
    if takes_notebooks and hours is None:
        show(f"How long a GPU notebook may run is not known: see {_requirements(competition)}")
        show(f"If that is less than 9 hours, write it into {path}, as infer_hours=2.0")
    for what, handle in handles.items():
        show(f"{what:12}{handle}")
    show("Next: invoke doctor")
    return Started(
        name, path, competition, added, name != before, handles, not unchecked, unchecked
    )


def slug(root: Path, competition: str) -> str:
    """Return what the addresses of a competition's notebooks begin with; "": its own slug.

    Raises:
        UsageError: if relay.toml cannot be read, or Kaggle would not find such an address.
    """
    return _slugs(root).get(competition, "")


def _chosen(
    configs: Mapping[str, Stated], competition: str, config: str, default: str | None
) -> str:
    """Return the config that is for a competition, or can be; "" if there is none."""
    fitting = [name for name, said in configs.items() if said.competition == competition]
    fitting = fitting or [name for name, said in configs.items() if said.assumed]
    if config:
        if not NAME.fullmatch(config):
            raise UsageError(
                f"--config {config[:80]!r} cannot be the default; expected the name of a config in"
                " pipeline/configs/.\nMove the file there, or give --config with each command."
            )
        said = configs[config]
        if said.competition != competition and not said.assumed:
            raise UsageError(
                f"The config {config} is for the competition {said.competition!r}; expected"
                f" {competition!r}.\nCorrect --config, or write into it:"
                f' competition="{competition}"'
            )
        return config
    if default is not None and default in fitting:
        return default
    if len(fitting) > 1:
        raise UsageError(
            f"Several configs can be for the competition {competition!r}: {', '.join(fitting)};"
            " expected a word on which becomes the default.\n"
            f"invoke init --competition {competition} --config {fitting[0]}"
        )
    return fitting[0] if fitting else ""


def _without_config(
    competition: str, configs: Mapping[str, Stated], hours: float | None
) -> UsageError:
    """Return the error that has the commands which make a config."""
    name = competition.lower().replace("-", "_")
    if not NAME.fullmatch(name) or keyword.iskeyword(name) or name in configs:
        name = f"c_{name}"
    data, given = f"data/{competition}", "" if hours is None else f" --infer-hours {hours:g}"
    return UsageError(
        f"No config is for the competition {competition!r}; expected one that `invoke inspect`"
        " writes for its data. Download and describe them, then give this command again:\n"
        f"kaggle competitions download {competition} -p data\n"
        f"unzip -q {data}.zip -d {data}\n"
        f"invoke inspect --input {data} --write {name} --competition {competition}\n"
        f"invoke init --competition {competition}{given}"
    )


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
                f"{root / FILE} says {competition} = {slug!r}; expected 3 or more lower-case"
                " letters, digits and hyphens, a letter first: Kaggle finds no new notebook whose"
                ' address begins with a digit ("Notebook not found").\nCorrect that line, as'
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


def _settings_text(root: Path, name: str, slugs: Mapping[str, str]) -> str:
    """Return relay.toml with this default and these slugs, and with the user's comments."""
    lines = {one: f'{one} = "{slug}"\n' for one, slug in slugs.items()}
    before, path = _slugs(root), root / FILE
    if path.exists():
        text = path.read_text(encoding="utf-8")
        line = f'config = "{name}"'
        text, found = re.subn(
            r"""^config[ \t]*=[ \t]*(["']).*?\1""", line, text, count=1, flags=re.M
        )
        text = text if found else f"{DEFAULT.format(name=name)}\n{text}"
        new = "".join(row for one, row in lines.items() if one not in before)
        if new:
            head = re.search(r"^\[slugs\].*\n", text, re.M)
            at = head.end() if head else len(text)
            text = text[:at] + ("" if head else SLUGS) + new + text[at:]
        with suppress(tomllib.TOMLDecodeError):  # written in a way that no line is found in
            if tomllib.loads(text) == {"config": name} | ({"slugs": dict(slugs)} if slugs else {}):
                return text
    return "".join([DEFAULT.format(name=name), *([SLUGS] if lines else []), *lines.values()])


def _not_settings(root: Path, value: Mapping[str, Any]) -> UsageError:
    return UsageError(
        f'{root / FILE} holds {value}; expected one line, config = "NAME", and perhaps a table'
        " [slugs].\nCorrect it, or remove the file."
    )


def in_address(competition: str, show: Show = lambda line: None) -> str:
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


def _require_slug(competition: str) -> None:
    """Raise `UsageError` unless this can be the slug of a competition."""
    if not SLUG.fullmatch(competition):
        last = competition.rstrip("/").rpartition("/")[2]
        hint = f"Try: --competition {last}" if SLUG.fullmatch(last) else "Correct it."
        given = f"{competition[:80]!r} is not a slug"
        if not competition:
            given, hint = "is missing", "invoke init --competition SLUG"
        raise UsageError(
            f"--competition {given}; expected the last part of the competition's address: 3 to 100"
            f" letters, digits and hyphens, capitals as there.\n{hint}"
        )


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
