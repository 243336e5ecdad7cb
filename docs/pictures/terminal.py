"""Run a command in a pseudo-terminal and save its output as an SVG image.

    python docs/pictures/terminal.py docs/pictures/start.svg invoke start

The image shows a real run. Lines that the command redraws are shown in their final state, and the
path of the current folder is replaced with a dot.
"""

import os
import pty
import shlex
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100  # characters


def main() -> int:
    """Run the command, save the image and return the exit code."""
    picture, *command = sys.argv[1:]
    printed = bytearray()

    def read(terminal: int) -> bytes:
        part = os.read(terminal, 4096)
        printed.extend(part)
        return part

    os.environ["COLUMNS"] = str(WIDTH)
    status = pty.spawn(command, read)
    text = printed.decode().replace("\r\n", "\n").replace(str(Path.cwd()), ".")
    lines = text.split("\n")
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {shlex.join(command)}", style="bold"))
    console.print(Text.from_ansi("\n".join(shown)))
    Path(picture).write_text(console.export_svg(title="kaggle-relay"), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
