"""What is claimed of pushes on an unkind site can miss."""

import pytest

from deploy.client import failure_messages
from deploy.client.retries import Pace
from deploy.relay.last_runs import Pushes
from deploy.relay.push_preview import Preview
from proofs.site import pushes


@pytest.mark.parametrize(
    ("row", "owner", "name", "value"),
    [
        (pushes.renewed_login, failure_messages, "answered", lambda code, error: False),
        (pushes.stored_source, Pushes, "refused_after", lambda *given, **bundle: None),
        (pushes.starting, Pace, "unstarted", 0.0),
        (pushes.short_quota, Preview, "seconds", property(lambda preview: preview.most)),
        (pushes.late_version, Pace, "unseen", 0.1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_row_misses_without_its_mending(monkeypatch, row, owner, name, value):
    """Each of these was as the site was thought to be."""
    monkeypatch.setattr(owner, name, value)

    assert not row().passed
