"""Whether a competition exists, and whether its rules were accepted.

Reads  the list of the competition's files, and the start of one of them
Gives  the names, or an error that says where the rules are

Kaggle lists the files of most competitions for everybody. It gives a file only to those who
accepted the rules.
"""

from collections.abc import Sequence

from deploy.client.client import Kaggle
from deploy.errors import Denied, NotFound, UsageError

SAMPLE = "sample_submission.csv"


def rules_address(competition: str) -> str:
    """Return the page on which the rules are accepted."""
    return f"https://www.kaggle.com/competitions/{competition}/rules"


def files(kaggle: Kaggle, competition: str) -> list[str]:
    """Return names of the competition's files, not all of them.

    Raises:
        UsageError: if Kaggle knows no such competition.
        Denied: if it does not show its files, for the rules or because there is none.
    """
    try:
        return kaggle.competition_files(competition)
    except NotFound as error:
        raise UsageError(
            f"Kaggle knows no competition {competition!r}.\n"
            "Expected the last part of its address, https://www.kaggle.com/competitions/<slug>."
            " Correct the slug."
        ) from error
    except Denied as error:
        raise Denied(
            f"Kaggle does not show the files of the competition {competition!r} (403).\n"
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
        raise Denied(
            f"Kaggle does not give {name} of the competition {competition!r} (403): its rules are"
            " not accepted.\n"
            f"Accept them at {rules_address(competition)}, then run the same command again."
        ) from error


def require(kaggle: Kaggle, competition: str) -> None:
    """Raise as `files` and `require_rules` do, unless there is nothing to raise."""
    require_rules(kaggle, competition, files(kaggle, competition))
