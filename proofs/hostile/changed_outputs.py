"""Changes of what a run left: files exchanged, links and pipes in their place, manifests that were
edited and sealed again, arrays of objects.
"""

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.storage import checksums
from proofs.hostile import payloads

Change = Callable[[Path], object]
Value = dict[str, Any]


def flip(folder: Path, *, name: str, share: float) -> None:
    """Turn one bit."""
    content = bytearray((folder / name).read_bytes())
    content[int(len(content) * share)] ^= 4
    (folder / name).write_bytes(content)


def removed(folder: Path, *, name: str) -> None:
    """Remove a file."""
    (folder / name).unlink()


def linked(folder: Path, *, name: str, lost: bool = False) -> None:
    """Put a link in the place of a file, to the same bytes elsewhere, or to nothing."""
    away = folder.parent / f"away-{name}"
    (folder / name).rename(away)
    (folder / name).symlink_to("/nowhere" if lost else away)


def foldered(folder: Path, *, name: str) -> None:
    """Put a folder in the place of a file."""
    (folder / name).unlink()
    (folder / name).mkdir()


def piped(folder: Path, *, name: str) -> None:
    """Put a pipe in the place of a file; whoever opens it waits for ever."""
    (folder / name).unlink()
    os.mkfifo(folder / name)


def exchanged(folder: Path) -> None:
    """Exchange weights and golden outputs."""
    (folder / "weights.npz").rename(folder / "x")
    (folder / "golden.npz").rename(folder / "weights.npz")
    (folder / "x").rename(folder / "golden.npz")


def beside(folder: Path, *, name: str, content: bytes) -> None:
    """Put a file beside the others."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)


def over(folder: Path, *, name: str, content: bytes) -> None:
    """Write other bytes over a file."""
    (folder / name).write_bytes(content)


def announced(folder: Path, *, name: str) -> None:
    """Let the manifest announce a file of this name."""
    edited(
        folder,
        edit=lambda told: {**told, "files": {**told["files"], name: told["files"]["weights.npz"]}},
    )


def edited(folder: Path, *, edit: Callable[[Value], Value]) -> None:
    """Change a manifest, and seal it again: a seal does not say who wrote it."""
    path = folder / "manifest.json"
    path.write_bytes(checksums.sealed(edit(json.loads(path.read_bytes()))))


def spoken(folder: Path, *, text: Callable[[bytes], bytes]) -> None:
    """Change the text of a manifest."""
    path = folder / "manifest.json"
    path.write_bytes(text(path.read_bytes()))


def resealed(folder: Path, *, name: str, content: bytes) -> None:
    """Put other bytes in the place of a file, and let the manifest say that they are the right
    ones.
    """
    (folder / name).write_bytes(content)
    digest = checksums.sha256(folder / name)

    def edit(told: Value) -> Value:
        told["files"][name] = {"sha256": digest, "size": len(content)}
        return {**told, **({"weights_sha256": digest} if name == "weights.npz" else {})}

    edited(folder, edit=edit)


def members(path: Path) -> dict[str, bytes]:
    """Return the members of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(folder: Path, *, name: str, edit: Callable[[dict[str, bytes]], Any]) -> None:
    """Change the members of an archive, and let the manifest agree."""
    resealed(folder, name=name, content=payloads.npz(edit(members(folder / name))))


def member(folder: Path, *, name: str, array: str, content: bytes) -> None:
    """Put other bytes into an archive, in the place of one array."""
    (folder / name).write_bytes(payloads.npz({**members(folder / name), array: content}))


def state(folder: Path, *, edit: Callable[[dict[str, bytes]], Any]) -> None:
    """Change the members of a checkpoint's state, and let its manifest agree."""
    stated(folder, content=payloads.npz(edit(members(folder / "state.npz"))))


def replaced(there: Mapping[str, bytes], *, content: bytes, name: str = "") -> dict[str, bytes]:
    """Return the members with other bytes in the place of one, the first where none is named."""
    return {**there, name or next(iter(there)): content}


def called(folder: Path, *, name: str) -> None:
    """Give a folder another name."""
    folder.rename(folder.with_name(name))


def stated(folder: Path, *, content: bytes) -> None:
    """Put other bytes in the place of a checkpoint's state, and let its manifest agree."""
    (folder / "state.npz").write_bytes(content)
    digest = checksums.sha256(folder / "state.npz")
    edited(folder, edit=lambda told: {**told, "sha256": digest})


def first(
    members: Mapping[str, bytes], change: Callable[[str, bytes], tuple[str, bytes]]
) -> dict[str, bytes]:
    """Return the members with the first one changed."""
    name, content = next(iter(members.items()))
    return dict([change(name, content), *list(members.items())[1:]])


WEIGHTS: dict[str, Callable[[dict[str, bytes]], Any]] = {
    "without one": lambda members: dict(list(members.items())[1:]),
    "with one more": lambda members: {
        **members,
        "more.npy": payloads.npy(bytes(4), descr="'<f4'", shape="(1,)"),
    },
    "of another shape": lambda members: first(
        members, lambda name, content: (name, payloads.npy(bytes(8), descr="'<f4'", shape="(2,)"))
    ),
    "of texts": lambda members: first(
        members, lambda name, content: (name, payloads.npy(bytes(8), descr="'<U1'", shape="(2,)"))
    ),
    "of NaN": lambda members: first(
        members, lambda name, content: (name, content[:-4] + b"\0\0\xc0\x7f")
    ),
    "of infinity": lambda members: first(
        members, lambda name, content: (name, content[:-4] + b"\0\0\x80\x7f")
    ),
    "with a name that climbs": lambda members: first(
        members, lambda name, content: (f"../../{name}", content)
    ),
    "with an absolute name": lambda members: first(
        members, lambda name, content: (f"/{name}", content)
    ),
    "with one name twice": lambda members: [*members.items(), next(iter(members.items()))],
    "with a shape of 10^12": lambda members: first(
        members,
        lambda name, content: (name, payloads.npy(b"", descr="'<f4'", shape=f"({10**12},)")),
    ),
    "with a member that is no array": lambda members: {**members, "x": b"evil"},
    "with bytes in the place of one": lambda members: first(
        members, lambda name, content: (name.removesuffix(".npy"), b"evil")
    ),
    "in another order": lambda members: dict(reversed(members.items())),
    "none": lambda members: {},
}


def nested(value: Value, depth: int) -> Value:
    """Put lists in lists, so many, into a manifest."""
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    return {**value, "deep": deep}


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "no object": lambda text: b"[]",
    "null": lambda text: b"null",
    "deep": lambda text: b"[" * 100_000,
    "400 deep": lambda text: text.replace(b"{", b'{"a": ' + b"[" * 400 + b"]" * 400 + b", ", 1),
    "900 deep": lambda text: text.replace(b"{", b'{"a": ' + b"[" * 900 + b"]" * 900 + b", ", 1),
    "a key twice": lambda text: text.replace(b"{", b'{"run_id": "other", ', 1),
    "NaN": lambda text: text.replace(b"{", b'{"loss": NaN, ', 1),
    "a number of 5,000 digits": lambda text: text.replace(
        b"{", b'{"loss": ' + b"9" * 5000 + b", ", 1
    ),
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "Latin-1": lambda text: text.replace(b"{", '{"ü": 1, '.encode("latin1"), 1),
    "half a surrogate": lambda text: text.replace(b"{", b'{"a": "\\ud800", ', 1),
    "a NUL": lambda text: text + b"\0",
    "a web page": lambda text: b"<html><script>alert(1)</script></html>",
    "cut off": lambda text: text[: len(text) // 2],
    "a blank more": lambda text: text + b" ",
}


def in_config(**values: Any) -> Callable[[Value], Value]:
    """Return what changes the config inside a manifest."""
    return lambda told: {**told, "config": {**told["config"], **values}}


EDITS: dict[str, Callable[[Value], Value]] = {
    "another run_id": lambda told: {**told, "run_id": "other"},
    "a run_id that is a path": lambda told: {**told, "run_id": "../../evil"},
    "a run_id that is a list": lambda told: {**told, "run_id": ["x"]},
    "files that are a list": lambda told: {**told, "files": ["weights.npz"]},
    "files without a size": lambda told: {**told, "files": {"weights.npz": {"sha256": "0"}}},
    "a size of infinity": lambda told: {
        **told,
        "files": {**told["files"], "weights.npz": {"sha256": "0", "size": float("inf")}},
    },
    "classes in another order": lambda told: {**told, "classes": told["classes"][::-1]},
    "classes of markup": lambda told: {
        **told,
        "classes": [f"<script>{name}</script>" for name in told["classes"]],
    },
    "classes that are numbers": lambda told: {**told, "classes": list(range(10))},
    "a prior of NaN": lambda told: {**told, "prior": [float("nan")] * 10},
    "a prior of texts": lambda told: {**told, "prior": ["x"] * 10},
    "a prior of 10^400": lambda told: {**told, "prior": [10**400] * 10},
    "a target that is none": lambda told: {
        **told,
        "target": {"kind": "__class__", "names": ["x"], "center": [], "spread": [], "log": False},
    },
    "a target that is a text": lambda told: {**told, "target": "classes"},
    "a metric that is none": lambda told: {**told, "metric": "__import__"},
    "a metric that is a list": lambda told: {**told, "metric": ["accuracy"]},
    "metrics of infinity": lambda told: {**told, "metrics": {"accuracy": float("inf")}},
    "versions that are a list": lambda told: {**told, "versions": []},
    "a model that is no model": in_config(model="__import__"),
    "a model with a dot": in_config(model="os.system"),
    "a model with a wrong option": in_config(model_options={"evil": 1}),
    "a model of another width": in_config(model_options={"width": 9, "dropout": 0.0}),
    "a config without data": in_config(data=None),
    "a config with an unknown field": in_config(evil=1),
    "a config of other images": lambda told: in_config(
        data={**told["config"]["data"], "height": 9}
    )(told),
    "a config whose table climbs": lambda told: in_config(
        data={**told["config"]["data"], "train_csv": "../../evil"}
    )(told),
    "a config that is a text": lambda told: {**told, "config": "digits"},
    "300 deep": partial(nested, depth=300),
    "no key at all": lambda told: {},
}
