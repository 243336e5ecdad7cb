"""Secrets are neither sent nor written, and other texts stay as they are."""

import base64
import hashlib
import json
import random
import string
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import failures, secrets

ROOT = Path(__file__).resolve().parents[3]
PLANTING = {"tests/deploy/setup/test_doctor.py", "tests/deploy/bundle/test_bundle.py"} | {
    f"tests/deploy/client/test_{name}.py" for name in ("auth", "secrets")
}
# Drawn at each start, so that this file holds none. The ends have a letter and a digit, however the
# draw falls.
DRAW = random.Random(7)  # noqa: S311 - they guard nothing
HEX32, HEX40, HEX256 = (
    "".join(DRAW.choices("0123456789abcdef", k=count - 4)) + "e0c4" for count in (32, 40, 256)
)
WORD36, WORD40, WORD60 = (
    "".join(DRAW.choices(string.ascii_letters + string.digits, k=count - 4)) + "Kw47"
    for count in (36, 40, 60)
)
BASIC = base64.b64encode(f"ann:{HEX32}".encode()).decode()
HELD = json.dumps({"username": "ann", "key": HEX32}, separators=(",", ":"))
LEAKS = {
    "a token of Kaggle": (f"KGAT_{HEX32}", HEX32),
    "kaggle.json": (HELD, HEX32),
    "kaggle.json, the other way round": (f'{{"key": "{HEX32}",\n "username": "ann"}}', HEX32),
    "a key beside its word": (f"my kaggle key is {HEX32}.", HEX32),
    "an assignment in Python": (f'os.environ["KAGGLE_KEY"] = "{HEX32}"', HEX32),
    "YAML of a container": (f"- name: KAGGLE_KEY\n  value: {HEX32}\n", HEX32),
    "a cell in a notebook's file": (json.dumps({"source": f'x\nKAGGLE_KEY = "{HEX32}"\n'}), HEX32),
    "a header": (f"Authorization: Basic {BASIC}", BASIC),
    "a scheme without its header": (f"it sent Bearer {WORD36}", WORD36),
    "an address with a key": (f"https://ann:{HEX32}@www.kaggle.com/api", HEX32),
    "a proxy with a password": ("http_proxy=http://ann:pass-Phrase@proxy:3128", "pass-Phrase"),
    "an address that Google signed": (f"https://x/y?a=1&X-Goog-Signature={HEX256}", HEX256),
    "a signed address in JSON": (f'{{"url": "https://x?a=1\\u0026token={WORD36}"}}', WORD36),
    "Hugging Face": (f"login('hf_{WORD36}')", WORD36),
    "Amazon's secret": (f"aws_secret_access_key = {WORD40}", WORD40),
    "Anthropic": (f"sk-ant-api03-{WORD60}", WORD60),
    "Weights & Biases": (f"wandb.login(key='{HEX40}')", HEX40),
}
# Those of detect-secrets: found before anything is sent, and not in each line that is shown.
CLAIMS = base64.urlsafe_b64encode(b'{"sub":"12345678901234"}').decode().rstrip("=")
SENT = {
    "a JSON web token": f"token {'eyJhbGciOiJub25lIn0'}.{CLAIMS}.{WORD40}",
    "Amazon": f"AKIA{'Q7' * 8}",
    "a private key": f"-----BEGIN RSA PRIVATE KEY-----\n{WORD60}\n-----END RSA PRIVATE KEY-----",
    "Slack": f"client = Slack('xoxb-{'12345678901-' * 2}{WORD36.lower()}')",
}
INNOCENT = [
    base64.b64encode(json.dumps({"username": "ann" * 20}).encode()).decode(),
    f"# kaggle dataset, md5 {HEX32}",
    "https://example.com/list?key=train_images_2024_full",
    'auth = Tokenizer("bert", "bert-base-uncased-2018-10")',
    f"sha256 = '{hashlib.sha256().hexdigest()}'  # of the key",
    "Bearer authentication is not used here, nor Basic authentication-with-words",
    'headers = {"Authorization": f"Bearer {token}"}',
    "KAGGLE_API_TOKEN=/home/ann/.kaggle/access_token_2024",
    'os.environ["KAGGLE_KEY"] = local_2024_settings_1.key',
    "https://user:password@proxy.example and http://{user}:{password}@proxy",
    "https://www.kaggle.com/code/ann/digits-train-tpu?scriptVersionId=123456789",
    f"run {HEX32[:8]}-{HEX32[8:12]}-{HEX32[12:16]}-{HEX32[16:20]}-{HEX32[20:]}",
]


# What a secret is


@pytest.mark.parametrize("leak", LEAKS)
def test_a_secret_is_found_and_taken_out_in_every_form_that_people_write(leak):
    """The text around it is kept."""
    text, value = LEAKS[leak]

    found = secrets.find(f"one\ntwo\n{text}\nlast")
    shown = secrets.redact(f"one\ntwo\n{text}\nlast")

    assert found and all(3 <= line <= 3 + text.count("\n") for line in found)
    assert shown.startswith("one\ntwo\n") and shown.endswith("\nlast")
    assert value not in shown and "…" in shown
    assert not secrets.find(shown) and secrets.redact(shown) == shown


@pytest.mark.parametrize("leak", SENT)
def test_a_secret_of_another_service_is_found_unless_its_line_allows_it(leak):
    assert list(secrets.find(f"one\n{SENT[leak]}\nlast")) == [2]
    assert not secrets.find(f"one\n{SENT[leak].replace(chr(10), ' ')}  # {secrets.ALLOWED}\nlast")


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_resembles_a_secret_is_left_alone(text):
    """A filter that eats hashes makes messages useless, and a scan that cries wolf gets switched
    off.
    """
    assert not secrets.find(text)
    assert secrets.redact(text) == text


def test_nothing_in_this_repository_looks_like_a_secret():
    """Every tracked file, except those that plant secrets; without git, every file."""
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    names = [name for name in git.stdout.split("\0") if name] or [
        path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.py"), *ROOT.glob("*/*/*.py"))
    ]
    read = [name for name in names if name not in PLANTING and (ROOT / name).is_file()]
    found = [
        f"{name}:{line} {kind}"
        for name in read
        for line, kind in secrets.find((ROOT / name).read_text("utf-8", "replace")).items()
    ]

    assert not found
    assert {"tasks.py", "deploy/secrets.py"} <= set(read)


TEXTS = st.text() | st.sampled_from([text for text, _ in LEAKS.values()])


@given(st.lists(TEXTS, max_size=6), st.sampled_from(["", " ", "\n", ", ", '"', "\\n"]))
def test_a_text_without_its_secrets_has_none(parts, between):
    """Property: for any texts next to each other, one redaction is enough."""
    shown = secrets.redact(between.join(parts))

    assert not secrets.find(shown)
    assert secrets.redact(shown) == shown


VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just("key"), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_json_without_its_secrets_is_still_json(value):
    """Property: scripts read the last line."""
    line = secrets.to_json(value)

    json.loads(line)
    assert line.isascii() and "\n" not in line
    assert not [name for name, (_, held) in LEAKS.items() if held in line]


def test_a_long_text_is_redacted_quickly_enough():
    """A run's log must not be able to stop a watch."""
    pieces = ("KAGGLE_", "username", "://a:", "token=", " key=a1")
    code = f"from deploy.secrets import redact; [redact(piece * 200_000) for piece in {pieces}]"

    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


# What is in use


def test_a_credential_with_the_letters_of_json_leaves_valid_json(monkeypatch):
    """Redacting it would break the quotes."""
    monkeypatch.setattr(secrets, "_known", set())
    secrets.know('correct-horse"')

    assert json.loads(secrets.to_json({"said": "correct-horse"}))


@pytest.mark.parametrize(
    "value", ["a secret of no shape", 'with "quotes" and \\', "ümläut-schlüssel"]
)
def test_a_credential_in_use_is_known_by_itself(value):
    """As it is, in a header, in an address and in JSON, unless it is too short."""
    for known in (value, "the", None):
        secrets.know(known, "ann")
    assert secrets.redact("the end") == "the end"
    header = base64.b64encode(f"ann:{value}".encode()).decode()
    forms = [value, header, quote(value, safe=""), json.dumps(value)]

    shown = secrets.redact(" and ".join(forms))

    bare = [value, header.rstrip("="), quote(value, safe=""), json.dumps(value)[1:-1]]
    assert not [form for form in bare if form in shown]
    assert value not in secrets.to_json({"error": f"it said {value}"})
    assert secrets.find(f"x {value} y") == {1: "a credential in use"}


def test_a_variable_of_the_environment_is_in_use(monkeypatch, tmp_path):
    """Also one for another service, but not the path of a file."""
    token = tmp_path / "access-token-2024"
    token.touch()
    monkeypatch.setenv("KAGGLE_KEY", "a key of no shape")
    monkeypatch.setenv("SOME_SERVICE_PASSWORD", "correct-horse-4-battery")
    monkeypatch.setenv("KAGGLE_API_TOKEN", str(token))

    shown = secrets.redact(f"a key of no shape; correct-horse-4-battery; {token}")

    assert shown == f"…; …; {token}"


def test_a_secret_is_taken_out_before_a_message_is_cut():
    """A part of a key would not be recognized."""
    assert HEX32[:8] not in failures.plain(f"{'x' * 480} KAGGLE_KEY={HEX32}")[:500]
    # Nor has one that a terminal would join again.
    assert HEX32 not in failures.plain(f"KGAT_\x1b[1m{HEX32}")
