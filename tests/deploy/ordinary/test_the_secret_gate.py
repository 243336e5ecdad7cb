"""What the gate before a push takes for a secret, and what not."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from deploy.bundle import bundle
from deploy.client import secrets
from deploy.errors import UsageError

ID = hashlib.md5(b"a patient", usedforsecurity=False).hexdigest()
ORDINARY = [
    f'MANIFEST_KEY = "{ID}"',
    f"# kaggle dataset, md5 {ID}",
    f'ROW = {{"key": "{ID}", "patient": "{ID}"}}',
    'URL = "https://example.com/list?key=train_images_2024_full"',
    'auth = Tokenizer("bert", "bert-base-uncased-2018-10")',
    "# docker run -u ann:build-image-2024-x image",
    'username = "ann"',
    'sort_key = "patient_0001_visit"',
    'USERNAME = "ann"\nSORT_KEY = "patient_0001_visit"',
    'api.set_config_value("path", "data_2024_of_images")',
    f'USERNAME = "{base64.b64encode(json.dumps({"username": "ann" * 20}).encode()).decode()}"',
]
SECRET = [
    f'{{"username": "ann", "key": "{ID}"}}',
    f'dict(key="{ID}", username="ann")',
    f'TOKEN = "KGAT_{ID}"',
    f'KAGGLE_KEY = "{ID}"',
    f'USERNAME = "ann"\nKEY = "{ID}"',
    f'api.set_config_value("key", "{ID}")',
    f'api.set_config_value(name="key", value="{ID}", quiet=True)',
]
# kaggle.json, as people carry it in one line.
CARRIED = [
    base64.b64encode(json.dumps({"username": "ann", "key": ID}, separators=each).encode()).decode()
    for each in ((",", ":"), (", ", ": "))
]


def pushed(root: Path, *lines: str) -> bundle.Bundle:
    """Build the bundle of a config that holds these lines."""
    config = root / "pipeline" / "configs" / "digits.py"
    config.write_text("\n".join(["CONFIG = 1", *lines, ""]))
    return bundle.build(
        "train-tpu", config="digits", competition="digits", owner="ann", out=root / "o", root=root
    )


def test_ids_and_names_of_files_are_no_secrets(root):
    assert pushed(root, *ORDINARY).text.count(ID) == 4


@pytest.mark.parametrize("line", SECRET, ids=lambda line: line.split(ID)[0])
def test_a_credential_of_kaggle_is_refused_and_the_way_past_is_named(root, line):
    with pytest.raises(UsageError) as refused:
        pushed(root, line)

    assert ID not in str(refused.value)
    assert "if it is no secret, end its line with  # pragma: allowlist secret" in str(refused.value)


@pytest.mark.parametrize("text", CARRIED)
def test_a_kaggle_json_in_base64_is_refused(root, text):
    with pytest.raises(UsageError, match=r"kaggle\.json") as refused:
        pushed(root, f'CARRIED = "{text}"')

    assert text[16:] not in str(refused.value)


def test_a_line_that_says_that_it_is_no_secret_passes(root):
    built = pushed(root, *(f"{line}  # pragma: allowlist secret" for line in SECRET))

    assert ID in built.text


def test_a_value_in_use_is_refused_whatever_its_line_says(root):
    secrets.know(ID)

    with pytest.raises(UsageError, match="a credential in use seems to be in cell"):
        pushed(root, f'X = "{ID}"  # pragma: allowlist secret')
