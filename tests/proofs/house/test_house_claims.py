"""The rows of `invoke prove house` about structure and bundles hold, and each can miss."""

from pathlib import Path

import pytest

from proofs.house import claims, layout

ROOT = Path(__file__).resolve().parents[3]


def test_the_short_rows_hold():
    """Packages, floors, lengths, and what travels in the two bundles."""
    rows = list(claims.rows(ROOT, short=True, show=lambda line: None))

    assert [row.claim for row in rows if not row.passed] == []
    assert len(rows) == 10


@pytest.fixture
def project(tmp_path):
    """Two packages of the model side, of which the upper one imports the lower one."""
    for name, text in {
        "storage/__init__": '"""Storage."""\n',
        "storage/files": "import numpy\n",
        "data/__init__": '"""Data."""\n',
        "data/reader": "def read():\n    from pipeline.storage import files\n",
        "configs/mine": "from pipeline.data import reader\n",
        "mine/net": "from pipeline.data import reader\n",
    }.items():
        path = tmp_path / "pipeline" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_user_s_own_package_and_config_are_on_no_floor(project):
    """They need no entry anywhere."""
    assert layout.upwards(project) == [] and layout.circle(project) == []


def test_an_import_from_below_is_named(project):
    """Inside of a function, too."""
    (project / "pipeline/storage/files.py").write_text(
        "def f():\n    import pipeline.data.reader\n"
    )

    assert layout.upwards(project) == ["pipeline/storage/files.py imports pipeline.data"]
    assert set(layout.circle(project)) == {"pipeline.data", "pipeline.storage"}
