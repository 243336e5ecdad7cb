"""Render self-contained HTML pages, which need no scripts, external fonts or requests.

Jinja2 escapes all text that is not already markup. The page's content security policy prevents the
browser from running scripts or loading resources.
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
SMALL = 64  # pixels; images up to this size are enlarged without smoothing


def quoted(value: object, most: int = LONG) -> Markup:
    """Shorten text, and wrap it in a <bdi> element that isolates its writing direction.

    Markup is returned unchanged.

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
    """Return an <img> element with an embedded image, uint8 (height, width, 1 or 3)."""
    packed = io.BytesIO()
    image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
    image.save(packed, "png", optimize=True)
    kind = Markup(' class="small"') if max(image.size) <= SMALL else ""
    return Markup('<img src="data:image/png;base64,{}" width="{}" height="{}" alt="{}"{}>').format(
        base64.b64encode(packed.getvalue()).decode(), *image.size, alt, kind
    )


def render(template: str, title: str, **values: Any) -> bytes:
    """Render a template, whose path is relative to workbench/."""
    page = ENVIRONMENT.get_template(template).render(title=title, **values)
    return page.encode(errors="replace")  # unpaired surrogates cannot be encoded


ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.filters |= {"plain": str, "quoted": quoted, "picture": picture}
