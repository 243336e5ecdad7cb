"""One self-contained HTML file: no scripts, fonts or requests.

Jinja2's templates escape every text that is not markup already. The page's policy forbids the
browser to run or fetch anything.
"""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

LONG = 80  # characters
SMALL = 64  # pixels: browsers enlarge pictures up to this size without smoothing


def quoted(value: object, most: int = LONG) -> Markup:
    """Return a text from a file, shortened to `most` characters, in a <bdi>, so that it cannot
    change the direction of the text around it. Markup stays unchanged.

    >>> quoted("<b>")
    Markup('<bdi>&lt;b&gt;</bdi>')
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    if len(text) <= most:
        return Markup("<bdi>{}</bdi>").format(text)
    return Markup('<bdi title="{}">{}…</bdi>').format(text[:400], text[: most - 1])


def picture(pixels: np.ndarray, alt: str) -> Markup:
    """Return an image as part of the page.

    Args:
        pixels: uint8 (height, width, 1 or 3).
        alt: describes the image for screen readers.
    """
    packed = io.BytesIO()
    image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
    image.save(packed, "png", optimize=True)
    kind = Markup(' class="small"') if max(image.size) <= SMALL else ""
    return Markup('<img src="data:image/png;base64,{}" width="{}" height="{}" alt="{}"{}>').format(
        base64.b64encode(packed.getvalue()).decode(), *image.size, alt, kind
    )


def render(template: str, title: str, **values: Any) -> bytes:
    """Return a page as the bytes of its file.

    Args:
        template: a path below workbench/.
        title: of the window.
        values: the template's values by name.
    """
    page = ENVIRONMENT.get_template(template).render(title=title, **values)
    return page.encode(errors="replace")  # half a surrogate pair has no encoding


ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.filters |= {"plain": str, "quoted": quoted, "picture": picture}
