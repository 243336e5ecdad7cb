"""Page: one HTML file that needs nothing beside itself: no script, no font, no address on any
network.

Every text becomes part of it through `tag` or `quoted`, which make characters of what could be
HTML. A browser that opens the page is told by its Content-Security-Policy to fetch nothing and to
run nothing, and knows the one style by its hash.
"""

import base64
import hashlib
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

# The pictures of control characters; half of a surrogate pair, which no file can hold, and the
# second set of controls have none.
SHOWN = {number: chr(0x2400 + number) for number in range(0x20)} | {0x7F: "␡"}
SHOWN |= dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
# What turns the direction of a text around: where no <bdi> can hold it in, it is left out.
TURNS = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
LONG = 80
VOID = {"img", "meta", "br"}
SMALL = 64  # pixels: a picture up to this size is enlarged as the squares that it is made of

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfc; --card: #f5f6f5; --ink: #16191d; --soft: #5d666e; --rule: #dfe3e5;
  --train: #3e74b5; --held: #c9600c; --good: #1d7a4d; --warn: #96600a; }
@media (prefers-color-scheme: dark) { :root { --paper: #131619; --card: #1b1f23; --ink: #e8eaec; --soft: #9ba5ae; --rule: #31373d;
  --train: #6ea3df; --held: #f0954f; --good: #5cc48f; --warn: #e0b055; } }
@media print { :root { color-scheme: light; --paper: #fff; --card: #f5f6f5; --ink: #000; --soft: #444; --rule: #ccc;
  --train: #3e74b5; --held: #c9600c; --good: #1d7a4d; --warn: #96600a; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0 auto; padding: 2.6rem 1.5rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
a { color: inherit; text-decoration-color: var(--rule); text-underline-offset: .25em; }
a:hover { text-decoration-color: currentColor; }
h1, h2, h3, p, dl, dd, figure, table { margin: 0; }
h1 { font-size: 1.15rem; font-weight: 650; overflow-wrap: anywhere; }
h2 { font-size: 1.4rem; font-weight: 650; letter-spacing: -.012em; line-height: 1.25; }
h3 { margin: 1.9rem 0 .5rem; font-size: 1rem; font-weight: 650; }
section { margin-top: 3rem; padding-top: 1.5rem; border-top: 1px solid var(--rule); }
section > h2 + * { margin-top: 1rem; }
section > * + p.note { margin-top: .8rem; }
section > * + .pair, section > * + .grid, section > * + figure { margin-top: 1.9rem; }
section > p.note + .pair, section > p.note + .pictures, section > p.note + .wide { margin-top: 1.1rem; }
figure .wide + figcaption { margin-top: .5rem; }
.note, figcaption, .over { color: var(--soft); font-size: .875rem; }
.note { max-width: 46rem; }
.over { text-transform: uppercase; letter-spacing: .08em; font-size: .75rem; font-weight: 600; }
.over bdi { text-transform: none; letter-spacing: 0; }
.state { display: inline-block; margin-left: .55em; padding: .05em .65em; border: 1px solid; border-radius: 99px; font-size: .78rem;
  font-weight: 600; vertical-align: .08em; }
.complete { color: var(--good); } .partial { color: var(--warn); }
.headline { display: flex; flex-wrap: wrap; align-items: flex-end; gap: .3rem 2.2rem; margin-top: 1.4rem; }
.value { font-size: clamp(3rem, 11vw, 4.8rem); font-weight: 680; line-height: 1; letter-spacing: -.035em;
  font-variant-numeric: tabular-nums; }
.beside { padding-bottom: .35rem; } .beside strong { font-weight: 600; }
.tiles { display: flex; flex-wrap: wrap; gap: 1px; margin-top: 1.9rem; overflow: hidden;
  border: 1px solid var(--rule); border-radius: .6rem; background: var(--rule); }
.tiles div { flex: 1 1 7.3rem; padding: .7rem .9rem .75rem; background: var(--paper); }
.tiles dt { color: var(--soft); font-size: .78rem; } .tiles dd { font-weight: 600; overflow-wrap: anywhere; }
.missing { margin-top: 1.4rem; padding: .85rem 1.1rem; border-left: 3px solid var(--warn); background: var(--card); font-size: .92rem; }
.missing ul { margin: .3rem 0 0; padding-left: 1.1rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; margin-top: 1.6rem; font-size: .9rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr)); gap: 1.8rem 2rem; align-items: start; }
.pair { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1.8rem 2.4rem; align-items: start; }
figure { min-width: 0; break-inside: avoid; }
figure > h3 { margin: 0 0 .4rem; }
.chart { display: block; width: 100%; height: auto; overflow: visible; font-family: inherit; font-variant-numeric: tabular-nums; }
.chart * { stroke-linejoin: round; stroke-linecap: butt; }
.key { white-space: nowrap; } .key::before { content: ""; display: inline-block; width: 1.2em; margin-right: .4em;
  border-top: 2px solid var(--held); vertical-align: .28em; } .key.train::before { border-top: 2px dashed var(--train); }
.key + .key { margin-left: 1.1em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .34rem .7rem .34rem 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: baseline; }
th { font-weight: 600; } thead th { color: var(--soft); font-weight: 500; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
tbody th { min-width: 5rem; } .classes tbody th { min-width: 8rem; } .matrix tbody th { min-width: 0; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.hash, code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .8rem;
  overflow-wrap: anywhere; }
td bdi, th bdi, li bdi, dd bdi, figcaption bdi { overflow-wrap: anywhere; }
tr { break-inside: avoid; }
.bar { display: block; width: 100%; min-width: 4rem; height: .5rem; fill: var(--train); }
td.bars { width: 34%; vertical-align: middle; }
.matrix { width: auto; font-size: .8rem; }
.matrix th, .matrix td { border: 0; padding: 0; }
.matrix td { min-width: 2.15rem; height: 2.15rem; border: 1px solid var(--paper); text-align: center; vertical-align: middle;
  background: var(--card); color: var(--soft); }
.matrix tbody th { padding-right: .6rem; text-align: right; max-width: 11rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; vertical-align: middle; }
.matrix thead th { padding-bottom: .35rem; color: inherit; text-align: center; vertical-align: bottom; }
.matrix thead td { height: auto; padding-right: .6rem; background: none; border: 0; text-align: right; vertical-align: bottom; }
.matrix.long thead th bdi { display: inline-block; max-height: 9rem; overflow: hidden; writing-mode: vertical-rl; transform: rotate(180deg);
  white-space: nowrap; text-overflow: ellipsis; }
.r1, .r2, .r3, .r4, .w1, .w2, .w3, .w4 { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.matrix .r1 { background: color-mix(in srgb, var(--train) 25%, var(--paper)); color: var(--ink); }
.matrix .r2 { background: color-mix(in srgb, var(--train) 50%, var(--paper)); color: var(--ink); }
.matrix .r3 { background: color-mix(in srgb, var(--train) 75%, var(--paper)); color: var(--paper); }
.matrix .r4 { background: var(--train); color: var(--paper); }
.matrix .w1 { background: color-mix(in srgb, var(--held) 22%, var(--paper)); color: var(--ink); }
.matrix .w2 { background: color-mix(in srgb, var(--held) 42%, var(--paper)); color: var(--ink); }
.matrix .w3 { background: color-mix(in srgb, var(--held) 68%, var(--paper)); color: var(--ink); }
.matrix .w4 { background: var(--held); color: var(--paper); }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.4rem, 1fr)); gap: 1.4rem 1.1rem; }
.pictures img { display: block; width: 100%; height: auto; border: 1px solid var(--rule); border-radius: .35rem; background: var(--card); }
.pictures img.small { image-rendering: pixelated; }
.pictures figcaption { margin-top: .4rem; line-height: 1.4; font-size: .8rem; }
.pictures figcaption strong { display: block; color: var(--ink); font-size: .9rem; font-weight: 600; }
.wrong { color: var(--held); }
details { margin-top: 1.4rem; border: 1px solid var(--rule); border-radius: .5rem; }
summary { padding: .6rem .9rem; cursor: pointer; font-weight: 600; font-size: .92rem; }
pre { margin: 0; padding: .2rem .9rem .9rem; overflow-x: auto; font: .8rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 44rem) { body { padding: 1.6rem 1rem 3rem; } .pair { grid-template-columns: minmax(0, 1fr); }
  section { margin-top: 2.2rem; } .classes .bars, .classes th:nth-child(6) { display: none; } .matrix tbody th { max-width: 6rem; }
  .pictures { grid-template-columns: repeat(auto-fill, minmax(6.4rem, 1fr)); gap: 1.1rem .8rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; } section { margin-top: 1.6rem; }
  h2, h3 { break-after: avoid; } .wide { overflow: visible; } details::details-content { content-visibility: visible; } }
"""


class Html(str):
    """A text that is HTML already; any other `str` is characters, and is escaped where it becomes
    part of a page.
    """

    __slots__ = ()


def tag(element: str, /, *children: str | Iterable[str], **attributes: str | int | None) -> Html:
    """Return an element. Attributes are written `class_` where Python has the word; one that is
    None is left out.

    >>> tag("p", "a < b, ", tag("b", "bold"), class_='"note"')
    '<p class="&quot;note&quot;">a &lt; b, <b>bold</b></p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(plain(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = joined(children)
    return Html(
        f"<{element}{given}>" if element in VOID else f"<{element}{given}>{inner}</{element}>"
    )


def joined(children: Iterable[str | Iterable[str]]) -> Html:
    """Return the parts as one, those that are not HTML as characters."""
    parts = (
        child
        if isinstance(child, Html)
        else html.escape(clean(child))
        if isinstance(child, str)
        else joined(child)
        for child in children
    )
    return Html("".join(parts))


def clean(text: str) -> str:
    """Return a text that every file can hold and every browser shows: a control character is its
    picture.

    >>> clean("a" + chr(0) + chr(10) + chr(0xD800)) == "a␀␊" + chr(0xFFFD)
    True
    """
    return text.translate(SHOWN)


def plain(text: str) -> str:
    """Return a cleaned text without what would turn around the text that it is put into."""
    return clean(text).translate(TURNS)


def quoted(value: object, most: int = LONG) -> Html:
    """Return a text from a file, as it is or shortened, which cannot change the direction of what
    stands around it.

    >>> quoted("<b>")
    '<bdi>&lt;b&gt;</bdi>'
    """
    text = str(value)
    short = text if len(text) <= most else text[: most - 1] + "…"
    return tag("bdi", short, title=None if short == text else text[:400])


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    kind: str | None = None,
) -> Html:
    """Return a table in a frame that can be scrolled; its first column names the row.

    `head`: the names of the columns, or none. `numbers`: the columns that stand at the right.
    """

    def cell(place: int, value: str, name: str) -> Html:
        if name == "td" and str(value).startswith("<svg"):
            return tag("td", value, class_="bars")
        scope = "row" if name == "th" and place == 0 else None
        return tag(name, value, class_="number" if place in numbers else None, scope=scope)

    first = tag(
        "tr",
        [
            tag("th", name, class_="number" if place in numbers else None, scope="col")
            for place, name in enumerate(head)
        ],
    )
    body = [
        tag("tr", [cell(place, value, "td" if place else "th") for place, value in enumerate(row)])
        for row in rows
    ]
    return tag(
        "div",
        tag("table", tag("thead", first) if head else "", tag("tbody", body), class_=kind),
        class_="wide",
    )


def facts(pairs: Iterable[tuple[str, str]], kind: str) -> Html:
    """Return names with a value each."""
    return tag(
        "dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], class_=kind
    )


def bar(share: float) -> Html:
    """Return a bar that fills this share, 0 to 1, of its column."""
    rect = tag("rect", width=f"{100 * min(max(share, 0.0), 1.0):.2f}", height=8, rx=1)
    return tag(
        "svg",
        rect,
        class_="bar",
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def picture(pixels: np.ndarray, words: str) -> Html:
    """Return an image, uint8 (height, width, 1 or 3), as part of the page; `words` say what it is
    to who does not see it.
    """
    packed = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(
        packed, "png", optimize=True
    )
    height, width = pixels.shape[:2]
    source = "data:image/png;base64," + base64.b64encode(packed.getvalue()).decode()
    kind = "small" if max(height, width) <= SMALL else None
    return tag("img", src=source, width=width, height=height, alt=words, class_=kind)


def document(title: str, body: Iterable[str]) -> bytes:
    """Return the page as the bytes of its file."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = (
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", plain(title)),
        tag("style", Html(STYLE)),
    )
    page = tag("html", tag("head", head), "", tag("body", body), lang="en")
    return f"<!doctype html>\n{page}\n".encode()


@dataclass(frozen=True)
class Section:
    """A part of the page. `name`: in its address, after #."""

    name: str
    title: str
    body: Html


def parted(head: Html, sections: Sequence[Section]) -> Html:
    """Return a page's content: its head, links to its parts, and the parts."""
    links = [tag("a", section.title, href=f"#{section.name}") for section in sections]
    return tag(
        "main",
        head,
        tag("nav", links, aria_label="Parts of this page"),
        [
            tag("section", tag("h2", section.title), section.body, id=section.name)
            for section in sections
        ],
    )
