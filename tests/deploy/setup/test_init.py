"""The default config, its options, and the competition on Kaggle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy import init
from deploy.errors import Denied, UsageError
from tests.deploy.between import Between

SLUG = "leaf-diseases-2026"
COMPETITION = {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True}
RULES = f"competitions/{SLUG}/rules"


@pytest.fixture
def ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project, and nobody signed in."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return root


def begin(
    root: Path,
    competition: str = SLUG,
    configs: Mapping[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Begin a competition; `configs`: the one of each config, by default of the config "other"."""

    def put(name: str, fields: Mapping[str, Any]) -> Path:
        return root / "pipeline" / "configs" / f"{name}.py"

    configs = configs or {"other": competition}
    known = {name: init.Stated(slug, False, None) for name, slug in configs.items()}
    return init.begin(root, competition, known, put, **more)


@pytest.fixture
def signed_in(ours: Path, between: Between, monkeypatch: pytest.MonkeyPatch) -> Between:
    """The same, signed in as ann, who accepted the rules."""
    monkeypatch.setattr(init, "PACE", type(init.PACE)(first=0.05, most=0.1, patience=0.3))
    between.always("GetCompetition", COMPETITION)
    return between


def written(root: Path) -> dict[str, str]:
    """Return every file of the project and its text."""
    return {str(path): path.read_text() for path in root.rglob("*") if path.is_file()}


def unchanged(ours: Path, error: type[Exception], said: str, *given: Any, **more: Any) -> None:
    """Begin what is refused with these words. Nothing is written."""
    before = written(ours)

    with pytest.raises(error, match=said):
        begin(ours, *given, **more)

    assert written(ours) == before


@pytest.mark.parametrize(
    ("slug", "config", "edit"),
    [
        ("Leaf Diseases", "", "Case matters"),
        ("https://kaggle.example/competitions/Leaf-2026/", "", "init --competition SLUG"),
        ("../../etc", "", "init --competition SLUG"),
        ("", "", "invoke init --competition SLUG"),
        ("leaf", "configs/leaf.py", "a config in pipeline/configs/"),
    ],
)
def test_a_name_that_cannot_work_is_refused_with_one_that_can(ours, slug, config, edit):
    """Before anything is written."""
    unchanged(ours, UsageError, edit, slug, config=config)


@pytest.mark.parametrize(
    "text",
    [
        *("config", "config = 3"),
        'config = "../x"',
        'config = "gone"',
        'config = "other"\nmore = 1',
    ],
)
def test_a_broken_relay_toml_is_named_with_its_edit(ours, text):
    """And `init` does not overwrite it, unless it only names a missing config."""
    (ours / init.FILE).write_text(text)

    with pytest.raises(UsageError, match=r"(?s)relay\.toml.*delete"):
        init.default_config(ours)

    if text != 'config = "gone"':
        unchanged(ours, UsageError, "relay.toml")


def test_init_works_without_credentials_and_says_so(between, ours, monkeypatch, shown):
    """The config becomes the default anyway."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name, raising=False)

    made = begin(ours, show=shown.append)

    assert between.seen == [] and made["remembered"] and made["unchecked"]
    assert f"https://www.kaggle.com/{RULES}" in "\n".join(shown)


REFUSED = {"code": 403, "message": "Permission denied"}
NOT_FOUND = (404, {"code": 404, "message": "No"})


@pytest.mark.parametrize(
    ("operation", "answer", "error", "said"),
    [
        ("GetCompetition", NOT_FOUND, UsageError, "does not exist on Kaggle"),
        ("GetCompetition", (403, REFUSED), Denied, RULES),
        ("GetCompetition", COMPETITION | {"userHasEntered": False}, Denied, RULES),
    ],
)
def test_a_competition_that_is_not_there_or_not_entered_ends_it(
    signed_in, ours, operation, answer, error, said
):
    """With the edit, and nothing written."""
    signed_in.always(operation, answer)

    unchanged(ours, error, said)


@pytest.mark.parametrize("takes_files", [True, False])
def test_the_competition_s_rules_and_deadline_are_shown(signed_in, ours, shown, takes_files):
    """No notebook has a time limit if files are uploaded."""
    about = {"isKernelsSubmissionsOnly": not takes_files, "deadline": "2026-12-31T23:59:00Z"}
    signed_in.always("GetCompetition", COMPETITION | about)

    begin(ours, show=shown.append)

    told = "\n".join(shown)
    assert "ends on 2026-12-31 23:59 UTC" in told
    assert ("uploaded files" in told, "--infer-hours" in told) == (takes_files, not takes_files)


DIGITS = "2026-leaves"


def test_the_notebooks_of_a_competition_that_begins_with_a_digit_get_a_letter(ours):
    """Kaggle does not find a new notebook whose address begins with a digit. Datasets keep the
    competition's name, and relay.toml may rename the notebooks.
    """
    assert begin(ours, DIGITS)["handles"] == {
        "train-tpu": "<you>/k-2026-leaves-train-tpu",
        "infer-gpu": "<you>/k-2026-leaves-infer-gpu",
        "artifact": "<you>/2026-leaves-artifact",
    }
    assert init.slug(ours, DIGITS) == "k-2026-leaves" and init.slug(ours, SLUG) == ""
    before = written(ours)
    assert not begin(ours, DIGITS)["remembered"] and written(ours) == before

    with (ours / init.FILE).open("a") as file:
        file.write(f'[slugs]\n{DIGITS} = "leaves"\n')
    assert begin(ours, DIGITS)["handles"]["train-tpu"] == "<you>/leaves-train-tpu"


@pytest.mark.parametrize("slug", ["2026-leaves", "Leaves", "le", "a b c"])
def test_a_slug_that_cannot_work_is_named_with_its_edit(ours, slug):
    """Before anything is sent to it."""
    (ours / init.FILE).write_text(f'[slugs]\n{DIGITS} = "{slug}"\n')

    with pytest.raises(UsageError, match=r'starting with a letter(.|\n)*2026-leaves = "k-2026-'):
        init.slug(ours, DIGITS)
    assert init.default_config(ours) == "digits"


def test_a_competition_can_be_started_by_its_address(ours):
    """Its last part is not a slug. Mounts are named after the slug, which may have capitals and be
    longer than an address.
    """
    slug = "Google-research-identify-contrails-reduce-global-warming"
    page = f"https://www.kaggle.com/competitions/{slug}/data?select=train.csv"

    assert begin(ours, page, {"other": slug})["competition"] == slug


def test_of_two_configs_for_a_competition_one_has_to_be_named(ours):
    """Until one of them is the default."""
    both = {"digits": SLUG, "other": SLUG}

    unchanged(ours, UsageError, r"digits, other.*\n.*--config digits$", configs=both)

    assert begin(ours, configs=both, config="other")["config"] == "other"
    assert begin(ours, configs=both)["config"] == init.default_config(ours) == "other"


def test_a_config_of_another_competition_is_not_taken_over(ours):
    """The line to change is named."""
    said = f"'birds': expected(.|\n)*=\"{SLUG}\""
    unchanged(ours, UsageError, said, configs={"birds": "birds-2026"}, config="birds")


@pytest.mark.parametrize("line", ['config = "digits"  # for now\n', ""])
def test_the_user_s_lines_in_relay_toml_are_kept(ours, line):
    """Comments, and the notebooks' names of another competition."""
    mine = f'# Mine\n{line}\n[slugs]\ndigits = "my-digits"  # too late\n'
    (ours / init.FILE).write_text(mine)

    begin(ours)

    assert init.default_config(ours) == "other" and init.slug(ours, "digits") == "my-digits"
    assert mine in (ours / init.FILE).read_text().replace('"other"', '"digits"')
