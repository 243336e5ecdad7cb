"""The chain with only Kaggle's client, by the commands of docs/by-hand.md."""

import re
import subprocess
import time

import pytest

from localkaggle.server import USER, LocalKaggle
from tests.e2e.project import LEAST, ROOT, copied, variables

WAITS_AT_MOST = 600.0  # seconds for a run, a dataset or a score; not a measure of speed
READY = re.compile("complete|ready", re.IGNORECASE)
WAITING = re.compile("kaggle (kernels|datasets) status|competitions submissions")


@pytest.mark.slow
def test_the_commands_of_the_page_lead_to_a_score(tmp_path):
    """In order; a command that asks for a status is repeated until the end."""
    project, said = copied(tmp_path), ""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs/by-hand.md").read_text(), re.DOTALL)
    lines = "".join(blocks).replace("OWNER", USER).splitlines()

    with LocalKaggle(tmp_path / "kaggle", competitions=["digits"]) as local:
        for line in lines:
            end = time.monotonic() + WAITS_AT_MOST
            while True:
                done = subprocess.run(
                    ["/bin/bash", "-c", line],
                    cwd=project,
                    env=variables(project, **local.environment),
                    capture_output=True,
                    text=True,
                )
                said = done.stdout
                assert done.returncode == 0, f"{line}\n{said}{done.stderr}"
                if not WAITING.search(line) or READY.search(said):
                    break
                assert time.monotonic() < end, f"{line}\n{said}"
                time.sleep(0.5)

    assert len(lines) > 10
    assert max(map(float, re.findall(r"\b[01]\.\d+", said))) >= LEAST
