"""Whether a competition exists, whether its rules were accepted, and what it takes.

Reads  what Kaggle says of the competition, the list of its files, and the start of one of them
Gives  a `Competition` and the names, or an error that says where the rules are

Kaggle lists the files of most competitions for everybody. It gives a file only to those who
accepted the rules.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from deploy import failure_messages
from deploy.client import Kaggle
from deploy.errors import UNTOLD, Denied, NotFound, RelayError, UsageError
from deploy.push_and_watch import Show
from deploy.responses import Competition

SAMPLE = "sample_submission.csv"


def rules_address(competition: str) -> str:
    """Return the page on which the rules are accepted."""
    return f"https://www.kaggle.com/competitions/{competition}/rules"


def look(kaggle: Kaggle, competition: str) -> Competition:
    """Return what Kaggle says of a competition that this account takes part in.

    Raises:
        UsageError: if Kaggle knows no such competition.
        Denied: if this account has not accepted its rules, or Kaggle does not show it.
    """
    with _explained(competition):
        found = kaggle.competition(competition)
    if not found.entered:
        heading = (
            f"This account has not entered the competition {competition!r}: its rules are not"
            " accepted."
        )
        # After its end it takes late submissions of everybody who accepts the rules.
        if _past(found.entry_ends) and not _past(found.ends):
            end = f", {_day(found.ends)}" if found.ends else ""
            raise Denied(
                f"{heading} It takes nobody new since {_day(found.entry_ends)}.\nExpected one that"
                f" still does. After its end{end}, it may take late submissions."
            )
        raise Denied(
            f"{heading}\nAccept them at {rules_address(competition)}, then run the same command"
            " again."
        )
    return found


def files(kaggle: Kaggle, competition: str) -> list[str]:
    """Return names of the competition's files, not all of them. Raises as `look`."""
    with _explained(competition):
        return kaggle.competition_files(competition)


@contextmanager
def _explained(competition: str) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise UsageError(
            f"Kaggle knows no competition {competition!r}.\n"
            "Expected the last part of its address, https://www.kaggle.com/competitions/<slug>."
            " Correct the slug."
        ) from error
    except Denied as error:
        if _of_the_account(error):
            raise
        raise Denied(
            f"Kaggle does not show the competition {competition!r} (403).\n"
            "Expected a competition whose rules you accepted. Correct the slug, or accept them at"
            f" {rules_address(competition)}"
        ) from error


def require_rules(kaggle: Kaggle, competition: str, names: Sequence[str]) -> str:
    """Return the name of a file that Kaggle gives; "" if there is none to try.

    Raises:
        Denied: if the rules were not accepted.
    """
    name = SAMPLE if SAMPLE in names else next(iter(names), "")
    try:
        if name:
            kaggle.open_competition_file(competition, name)
        return name
    except NotFound:
        return ""  # listed under another name than it is asked for: this says nothing of the rules
    except Denied as error:
        if _of_the_account(error):
            raise
        raise Denied(
            f"Kaggle does not give {name} of the competition {competition!r} (403): its rules are"
            " not accepted.\n"
            f"Accept them at {rules_address(competition)}, then run the same command again."
        ) from error


def require(kaggle: Kaggle, competition: str, show: Show = lambda line: None) -> Competition:
    """Return what Kaggle says of a competition. Raises as `look` and `require_rules` do.

    Args:
        show: is given a line if the competition takes no submissions, or has ended.
    """
    found = look(kaggle, competition)
    require_rules(kaggle, competition, files(kaggle, competition))
    if found.closed:
        show(f"Warning: {competition} takes no submissions now, so a run cannot be scored.")
    show_end(found, competition, show)
    return found


def show_end(found: Competition, competition: str, show: Show) -> None:
    """Show a line if the competition has ended."""
    if _past(found.ends) and not found.closed:
        show(f"Warning: {competition} ended on {_day(found.ends)}; a score counts for nothing.")


def foresee(kaggle: Kaggle, competition: str, show: Show) -> None:
    """Show that no submission is left, where that is so, before a run that is to be submitted."""
    try:
        limits = kaggle.submission_limits(competition)
    except UNTOLD:
        return  # a push says more of the rules and the slug, and a submission asks again
    if limits.allowed_now < 1 and (limits.today or limits.total):
        show(
            f"Warning: no submission to {competition} is left now, so what runs gets no score yet."
            f" {limits.next}"
        )


def in_words(found: Competition) -> str:
    """Return what a competition takes and until when, for a person."""
    parts = [f"takes {'uploaded files' if found.takes_files else 'notebooks'}"]
    if found.daily:
        parts.append(f"{found.daily} submissions a day")
    if found.teams_end is not None:
        parts.append(f"teams may merge until {_day(found.teams_end)}")
    if found.ends is not None:
        parts.append(f"ends on {_day(found.ends)}")
    return ", ".join(parts)


def _of_the_account(error: Denied) -> bool:
    """Return whether the account lacks something else than the rules, such as a verified phone."""
    return error.gate not in ("", failure_messages.RULES)


def _past(moment: datetime | None) -> bool:
    return moment is not None and moment < datetime.now(UTC)


def _day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def require_fit(
    kaggle: Kaggle, competition: str, sample: str, check: Callable[[Path], object], again: str
) -> None:
    """Raise `UsageError` if the competition's sample of today does not let a submission pass.

    Args:
        sample: its name among the competition's files.
        check: is called with it; raises to stop.
        again: the command that runs the inference once more.
    """
    with tempfile.TemporaryDirectory(prefix="relay-sample-") as folder:
        path = Path(folder) / Path(sample).name
        try:
            kaggle.download_competition_file(competition, sample, path)
        except NotFound as error:
            names = ", ".join(kaggle.competition_files(competition)[:12])
            raise UsageError(
                f"The competition {competition} has no file {sample!r}; it has, among others:"
                f" {names}.\nExpected the one that shows what a submission looks like. Set"
                " data.sample_submission in the config."
            ) from error
        try:
            check(path)
        except Exception as error:
            if isinstance(error, RelayError) or getattr(error, "exit_code", None) != 1:
                raise  # it says nothing of the submission
            named = f"{sample} of the competition {competition}"
            raise UsageError(
                f"{str(error).replace(str(path), named)}\nIf Kaggle's files have changed since the"
                f" inference ran, run it again with them:\n{again}"
            ) from error
