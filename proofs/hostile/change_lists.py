"""Lists of the changes that hostile artifacts, checkpoints and results are made by."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from proofs.hostile import changed_outputs as changes
from proofs.hostile import payloads
from proofs.hostile.changed_outputs import Change

Changes = Iterator[tuple[str, Change]]
BESIDE = ("evil.pkl", "sitecustomize.py", "pipeline/__init__.py", "weights.h5", "model.keras")
# Names that are not quite a checkpoint's.
STEPS = (
    "step-00000002 (copy)", "step-99999999999999999999", "step--0000001", "step-00000002.replaced",
    "..step-00000009", "step-0000000２",
)  # fmt: skip
PROGRESS = {
    "deep": b"[" * 100_000 + b"\n",
    "a web page": b"<html>\n",
    "noise": bytes(range(256)),
    "NaN": b'{"step": NaN}\n',
    "a huge step": b'{"step": ' + b"9" * 5000 + b"}\n",
}
TABLES = {
    "deep": b"[" * 100_000 + b"\n",
    "a web page": b"<html><script>1</script>\n",
    "noise": bytes(range(256)) * 9,
    "empty": b"",
}


def artifacts(marker: Path, top: Path) -> Changes:
    """Yield changes of an artifact folder, by name."""
    for number, name in enumerate(("weights.npz", "golden.npz", "manifest.json") * 4):
        flip = partial(changes.flip, name=name, share=(number // 3 + 0.5) / 4)
        yield f"another bit of {name} ({number // 3})", flip
    for name in ("weights.npz", "golden.npz", "manifest.json"):
        yield f"without {name}", partial(changes.removed, name=name)
        yield f"{name} as a link", partial(changes.linked, name=name)
        lost = partial(changes.linked, name=name, lost=True)
        yield f"{name} as a link that leads nowhere", lost
        yield f"{name} as a folder", partial(changes.foldered, name=name)
        yield f"{name} as a pipe", partial(changes.piped, name=name)
    yield "weights and golden exchanged", changes.exchanged
    opens = payloads.pickles(marker)["a pickle that opens a file"]
    for name in BESIDE:
        yield f"with {name} beside it", partial(changes.beside, name=name, content=opens)
    for name in payloads.names(top)[::3]:
        if "\ud800" not in name:
            yield f"announces {name[:40]!r}", partial(changes.announced, name=name)
    for name, edit in changes.EDITS.items():
        yield name, partial(changes.edited, edit=edit)
    for name, text in changes.TEXTS.items():
        yield f"manifest.json: {name}", partial(changes.spoken, text=text)
    for name, pickle in payloads.pickles(marker).items():
        bad = payloads.npy(pickle, descr="'|O'", shape="(1,)")
        first = partial(changes.replaced, content=bad)
        inputs = partial(changes.replaced, content=bad, name="inputs.npy")
        yield f"weights with {name}", partial(changes.packed, name="weights.npz", edit=first)
        yield f"golden with {name}", partial(changes.packed, name="golden.npz", edit=inputs)
        whole = partial(changes.resealed, name="weights.npz", content=pickle)
        yield f"weights that are {name}", whole
    for name, edit in changes.WEIGHTS.items():
        yield f"weights {name}", partial(changes.packed, name="weights.npz", edit=edit)
        yield f"golden {name}", partial(changes.packed, name="golden.npz", edit=edit)


def checkpoints(marker: Path) -> Changes:
    """Yield changes of an output folder with a checkpoint, by name."""

    def of(change: Callable[..., object], **more: Any) -> Change:
        return partial(_of_checkpoint, partial(change, **more))

    for number, name in enumerate(("state.npz", "manifest.json") * 4):
        flip = of(changes.flip, name=name, share=(number // 2 + 0.5) / 4)
        yield f"another bit of {name} ({number // 2})", flip
    for name in ("state.npz", "manifest.json"):
        yield f"without {name}", of(changes.removed, name=name)
        yield f"{name} as a folder", of(changes.foldered, name=name)
        yield f"{name} as a pipe", of(changes.piped, name=name)
    for name, pickle in payloads.pickles(marker).items():
        bad = payloads.npy(pickle, descr="'|O'", shape="(1,)")
        first = partial(changes.replaced, content=bad)
        yield f"a state with {name}", of(changes.state, edit=first)
        yield f"a state that is {name}", of(changes.stated, content=pickle)
    for name, edit in changes.WEIGHTS.items():
        yield f"a state {name}", of(changes.state, edit=edit)
    for name, text in changes.TEXTS.items():
        yield f"a manifest: {name}", of(changes.spoken, text=text)
    for name in STEPS:
        yield f"called {name}", of(changes.called, name=name)
    for name in ("progress.jsonl", "history.csv"):
        for what, content in PROGRESS.items():
            yield f"{name} is {what}", partial(changes.over, name=name, content=content)


def results(marker: Path) -> Changes:
    """Yield changes of an output folder of a complete run, by name."""
    for name, array in (
        ("validation.npz", "probabilities.npy"),
        ("examples.npz", "pixels.npy"),
        ("examples.npz", "indices.npy"),
    ):
        for what, content in payloads.arrays(marker, 3).items():
            if "pickle" in what or "shape" in what or "header" in what:
                change = partial(changes.member, name=name, array=array, content=content)
                yield f"{name}: {array} is {what}", change
        for what, pickle in payloads.pickles(marker).items():
            yield f"{name} is {what}", partial(changes.over, name=name, content=pickle)
    for name in ("validation.csv", "history.csv", "progress.jsonl", "submission.csv"):
        for what, content in TABLES.items():
            yield f"{name} is {what}", partial(changes.over, name=name, content=content)
    for what, text in changes.TEXTS.items():
        change = partial(_of_artifact, partial(changes.spoken, text=text))
        yield f"artifact/manifest.json: {what}", change
    for what, edit in changes.EDITS.items():
        change = partial(_of_artifact, partial(changes.edited, edit=edit))
        yield f"artifact/manifest.json: {what}", change


def _of_artifact(change: Change, output: Path) -> None:
    change(output / "artifact")


def _of_checkpoint(change: Change, output: Path) -> None:
    change(next((output / "checkpoints").iterdir()))
