"""One HTML file that needs nothing beside itself: no script, no font, no request.

The templates are Jinja2's. They escape every text that is not markup already, and show its control
characters as pictures. The page's Content-Security-Policy forbids every request and every script,
and allows the one style by its hash.
"""

import base64
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

# Each control character becomes its picture. Three kinds have none: the second set of controls,
# half of a surrogate pair, and the two that are no characters.
PICTURES = {number: chr(0x2400 + number) for number in range(0x20)} | {0x7F: "␡"}
PICTURES |= dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
# These change the direction of a text. A <bdi> contains them; elsewhere they are removed.
DIRECTIONS = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
LONG = 80  # characters
SMALL = 64  # pixels: the browser enlarges a picture up to this size without smoothing
STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def clean(text: str) -> str:
    """Return a text that every file can hold and every browser shows.

    >>> clean("a" + chr(0) + chr(10) + chr(0xD800)) == "a␀␊" + chr(0xFFFD)
    True
    """
    return text.translate(PICTURES)


def plain(text: str) -> str:
    """Return a clean text without the characters that change its direction."""
    return clean(text).translate(DIRECTIONS)


def quoted(value: object, most: int = LONG) -> Markup:
    """Return a text from a file, shortened to `most` characters, in a <bdi>: it cannot change the
    direction of the text around it.

    >>> quoted("<b>")
    Markup('<bdi>&lt;b&gt;</bdi>')
    """
    text = str(value)
    if len(text) <= most:
        return Markup("<bdi>{}</bdi>").format(clean(text))
    short = clean(text[: most - 1] + "…")
    return Markup('<bdi title="{}">{}</bdi>').format(plain(text[:400]), short)


def picture(pixels: np.ndarray, alt: str) -> Markup:
    """Return an image as part of the page.

    Args:
        pixels: uint8 (height, width, 1 or 3).
        alt: what the image is, for a reader who does not see it.
    """
    packed = io.BytesIO()
    image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
    image.save(packed, "png", optimize=True)
    kind = Markup(' class="small"') if max(image.size) <= SMALL else ""
    return Markup('<img src="data:image/png;base64,{}" width="{}" height="{}" alt="{}"{}>').format(
        base64.b64encode(packed.getvalue()).decode(), *image.size, plain(alt), kind
    )


def render(template: str, title: str, **values: Any) -> bytes:
    """Return a page as the bytes of its file.

    Args:
        template: a path below pipeline/.
        title: of the window.
        values: what the template shows, by name.
    """
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    style = Markup(STYLE)  # noqa: S704 - our own file
    page = ENVIRONMENT.get_template(template)
    return page.render(title=title, style=style, digest=digest, **values).encode()


ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    autoescape=True,
    finalize=lambda value: value if isinstance(value, Markup) else clean(str(value)),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.filters |= {"plain": plain, "quoted": quoted, "picture": picture}
