"""A plan that is kept with a run, and the report that shows both."""

import re
from pathlib import Path

from localkaggle import competitions
from proofs.shared import module_process
from proofs.shared.results_table import Row

CONFIG = "digits"
TAGS = re.compile(r"<[^>]*>|\s+")


def row(root: Path, folder: Path) -> Row:
    """Return the row of a training that was planned, and its report."""
    data, output = folder / "digits", folder / "planned"
    competitions.EMBEDDED[CONFIG]().write(data)
    config = "--config", CONFIG
    place = "--output", output
    module_process.output(
        root, "pipeline", "plan", *config, "--for", "cpu", "--input", data, *place
    )
    module_process.output(root, "pipeline", "train", *config, "--input", data, *place)
    module_process.output(root, "pipeline", "report", *place)
    text = TAGS.sub(" ", (output / "report.html").read_text())
    words = " ".join(text.split())
    found = re.search(
        r"beside the plan planned was (training .*?) images a second (\S+) (\S+)", words
    )
    shown = f"{found[1]}; images a second {found[2]} {found[3]}" if found else "nothing"
    both = found is not None and float(found[2].replace(",", "")) > 0 < float(
        found[3].replace(",", "")
    )
    return Row(
        f"The report of {CONFIG} on this CPU, beside the plan that was kept with the run",
        "training and images a second, as planned and as they were",
        f"planned and was: {shown}",
        both and "The plan before the run" in words,
    )
