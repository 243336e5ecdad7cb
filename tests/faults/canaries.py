"""Twenty secrets, two for each kind of place, drawn from a seed so that none is in the code."""

import base64
import random
import string
from dataclasses import dataclass, field

from localkaggle.server import USER

FRAGMENT = 12  # characters; a part of a secret of this length counts as the secret
LETTERS, HEXADECIMAL = string.ascii_letters + string.digits, "0123456789abcdef"
PASSWORD = "cannot clone https://ann:{}@example.com/x"  # noqa: S105 - a form without one


@dataclass(frozen=True)
class Canary:
    """A planted secret.

    Attributes:
        place: where it is planted.
        kind: as the scanner calls it.
        text: what is planted.
        value: the part of it that nobody may see.
    """

    place: str
    kind: str
    text: str = field(repr=False)
    value: str = field(repr=False)

    def is_in(self, data: bytes) -> bool:
        """Return whether a fragment of the value is in there."""
        starts = range(len(self.value) - FRAGMENT + 1)
        return any(self.value[start : start + FRAGMENT].encode() in data for start in starts)


def canaries(seed: int) -> list[Canary]:
    """Return twenty secrets, two for each of ten kinds of place."""
    draw = random.Random(seed)  # noqa: S311 - they guard nothing

    def some(count: int, alphabet: str = LETTERS) -> str:
        end = "e0c4" if alphabet == HEXADECIMAL else "Kw47"  # always with letters and digits
        return "".join(draw.choices(alphabet, k=count - 4)) + end

    def canary(place: str, kind: str, form: str, value: str) -> Canary:
        return Canary(place, kind, form.format(value), value)

    def encoded(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    key, other = some(32, HEXADECIMAL), some(32, HEXADECIMAL)
    tokens = [f"KGAT_{some(32, HEXADECIMAL)}" for _ in range(4)]
    pem = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----"
    signed = "https://storage.googleapis.com/x?X-Goog-Signature={}"
    header, basic = "an Authorization header", "Authorization: Basic {}"
    account = 'ACCOUNT = {{"username": "ann", "key": "{}"}}'
    web_token, parts = "eyJhbGciOiJub25lIn0.{}", (encoded(some(40)), some(43))
    return [
        canary("environment", "a Kaggle key", "KAGGLE_KEY={}", key),
        canary("environment", "a Hugging Face token", "HF_TOKEN=hf_{}", some(34)),
        canary("notebook cell", "a Kaggle token", "{}", tokens[0]),
        canary("notebook cell", "a private key", pem, some(64)),
        canary("cell metadata", "a GitHub token", "ghp_{}", some(36)),
        canary("cell metadata", header, basic, encoded(f"ann:{other}")),
        canary("config module", "a Kaggle key", account, some(32, HEXADECIMAL)),
        canary("config module", "an AWS secret", 'AWS_SECRET_ACCESS_KEY = "{}"', some(40)),
        canary("kernel-metadata.json", "a Kaggle token", "ann/{}", tokens[1]),
        canary("kernel-metadata.json", "an API key", "sk-ant-api03-{}", some(60)),
        canary("manifest.json", "a signed address", signed, some(256, HEXADECIMAL)),
        canary("manifest.json", "a JSON web token", web_token, ".".join(parts)),
        canary("submission description", "a Kaggle token", "{}", tokens[2]),
        canary(
            "submission description",
            "a Weights & Biases key",
            "WANDB_API_KEY={}",
            some(40, HEXADECIMAL),
        ),
        canary("error page", header, basic, encoded(f"{USER}:{key}")),
        canary("error page", header, "Authorization: Bearer {}", tokens[3]),
        canary("traceback", "an API key", "cannot reach it with sk-proj-{}", some(48)),
        canary("traceback", "an address with a password", PASSWORD, some(24)),
        canary("journal row", "a signed address", "https://example.com/code?token={}", some(40)),
        canary("journal row", "a GitHub token", "github_pat_{}", some(60)),
    ]
