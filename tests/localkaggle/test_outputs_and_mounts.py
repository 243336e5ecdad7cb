"""The local Kaggle keeps outputs, mounts sources and gives machines as its facts say."""

from functools import partial
from typing import Any

import kagglesdk.kernels.types.kernels_api_service as kernel_types
import pytest

from localkaggle.facts import Facts
from localkaggle.services.protocol import make
from localkaggle.sessions.machine_shapes import emulated
from tests.localkaggle.pushed_notebooks import Scripted, finished, notebook, save

FILES = {"a.csv": b"id\n1\n", ".hidden": b"h", ".cache/x": b"x", "empty": b"", "b/c.npz": b"c"}


def write(session: Scripted) -> None:
    """Leave files of every kind."""
    for name, data in FILES.items():
        path = session.working / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


def left(kaggle: Any, client: Any) -> dict[str, bytes]:
    """Return what a listing gives of the output of such a session."""
    save(client, notebook("1"))
    version = finished(kaggle)
    request = make(
        kernel_types.ApiListKernelSessionOutputRequest,
        user_name="rehearsal",
        kernel_slug="small-kernel",
    )
    listed = client.kernels.kernels_api_client.list_kernel_session_output(request).files
    return {file.file_name: (version.working / file.file_name).read_bytes() for file in listed}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(), FILES),
        (Facts(hidden_files=False), {n: d for n, d in FILES.items() if not n.startswith(".")}),
        (Facts(empty_files=False), {name: data for name, data in FILES.items() if data}),
        (Facts(rewritten=("a.csv",)), FILES | {"a.csv": FILES["a.csv"] + b"\n"}),
    ],
    ids=["all", "without hidden", "without empty", "with other bytes"],
)
def test_an_output_is_kept_as_the_facts_say(start, client, facts, expected):
    """Nobody has seen what Kaggle does with a hidden, an empty or an odd file."""
    kaggle = start(facts=facts, session=partial(Scripted, write))

    assert left(kaggle, client(kaggle)) == expected


class Given(Scripted):
    """A session that does nothing, and keeps what it was given."""

    given: dict[str, Any]

    def __init__(self, *words: Any, **given: Any) -> None:
        super().__init__(lambda session: None, *words, **given)
        self.given = given


def given(start: Any, client: Any, **options: Any) -> dict[str, Any]:
    """Return what a session on the pair of T4 gets that asks for the internet and a competition."""
    kaggle = start(session=Given, competitions=["digits"], **options)
    fields = {"machine_shape": "NvidiaTeslaT4", "enable_internet": True}
    save(client(kaggle), notebook("1"), competition_data_sources=["digits"], **fields)
    session: Any = finished(kaggle).session
    return dict(session.given)


@pytest.mark.parametrize("internet", [True, False])
def test_a_session_that_asks_for_the_internet_may_get_none(start, client, internet):
    """Kaggle gives none to an account that is not verified, and says nothing."""
    assert given(start, client, facts=Facts(internet=internet))["internet"] is internet


@pytest.mark.parametrize(
    ("layout", "places"),
    [
        ("2026", ["competitions/digits"]),
        ("flat", ["digits"]),
        ("both", ["competitions/digits", "digits"]),
    ],
)
def test_a_source_is_mounted_where_the_layout_says(start, client, layout, places):
    """Both at once, from one folder."""
    inputs = given(start, client, layout=layout)["inputs"]

    assert sorted(inputs) == places and len(set(inputs.values())) == 1


@pytest.mark.parametrize(("gpus", "devices"), [(2, "2"), (1, "1"), (0, "1")])
def test_a_session_on_the_pair_has_as_many_devices_as_gpus(start, client, gpus, devices):
    """Of a CPU, for JAX; one stays where there is no GPU."""
    assert given(start, client, facts=Facts(gpus=gpus))["gpus"] == gpus
    assert emulated("NvidiaTeslaT4", gpus) == {"JAX_NUM_CPU_DEVICES": devices}
