"""A real browser renders a report on wide and narrow screens, in light and dark, and makes no
requests.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.evaluate import held_out_rows
from tests.pipeline.handmade import AWKWARD, run
from workbench.report import report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium is installed here; on Debian: apt-get install chromium"
    ),
]
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --hide-scrollbars
--allow-file-access-from-files --enable-logging=stderr"""
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND"  # no name resolves
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
# The page runs no script; one around it measures what is in its frames.
AROUND = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe src="run/report.html" style="border:0;width:1000px;height:600px"></iframe>
<iframe src="run/report.html" style="border:0;width:400px;height:600px"></iframe>
<pre></pre><script>
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, all = name => [...page.querySelectorAll(name)];
    const box = element => element.getBoundingClientRect();
    const size = element => [box(element).width, box(element).height];
    return {
      width: page.documentElement.scrollWidth,
      headings: all("h1, h2").map(heading => heading.innerText),
      labels: all("table.classes tbody th").map(cell => cell.textContent),
      images: all("img").map(image => [image.complete, image.naturalWidth, ...size(image)]),
      charts: all("svg.chart").map(size),
      paper: getComputedStyle(page.body).backgroundColor,
      scripts: all("script").length,
    };
  });
  document.querySelector("pre").textContent = JSON.stringify(found);
});
</script>"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a page around the report of a run with awkward labels."""
    folder = tmp_path_factory.mktemp("browser")
    output = run(folder / "run", names=AWKWARD, rows=70)
    pixels = np.random.default_rng(0).integers(0, 255, (70, 12, 10, 3), dtype=np.uint8)
    held_out_rows.keep_examples(output, np.arange(69, 64, -1), pixels[69:64:-1])
    report.write(output)
    (folder / "around.html").write_text(AROUND)
    return folder


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that opens a file in a new browser."""

    def start(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [str(BROWSER), *FLAGS.split(), ALONE, profile, *options, path.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)

    return start


def measured(dumped: str) -> list[dict[str, Any]]:
    return list(json.loads(unescape(dumped.partition("<pre>")[2].partition("</pre>")[0])))


@pytest.mark.parametrize(
    ("scheme", "paper"), [(LIGHT, "rgb(253, 253, 252)"), (DARK, "rgb(19, 22, 25)")]
)
def test_everything_is_there_and_fits_the_screen(shown, browse, scheme, paper):
    """At 1000 and at 400 pixels, each picture and chart has a size, and the page its colours."""
    done = browse(shown / "around.html", "--window-size=1500,700", scheme, "--dump-dom")

    frames = measured(done.stdout)
    assert [frame["width"] for frame in frames] == [1000, 400]
    for frame in frames:
        assert frame["headings"][0].startswith("tiny") and frame["headings"][0].endswith("complete")
        assert frame["headings"][1:4] == ["Curves", "Classes", "Calibration"]
        assert (len(frame["headings"]), len(frame["images"]), len(frame["charts"])) == (7, 5, 5)
        assert frame["labels"][:3] == list(AWKWARD[:3]) and len(frame["labels"]) == len(AWKWARD)
        for complete, natural, *box in frame["images"]:
            assert complete and natural == 10 and min(box) > 50
        assert all(min(size) > 150 and max(size) < 600 for size in frame["charts"])
        assert (frame["paper"], frame["scripts"]) == (paper, 0)
    assert "Content Security Policy" not in done.stderr
