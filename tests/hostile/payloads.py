"""Payloads: names, pickles, arrays and archives made to write where they should not, or to run
code: each would leave a mark that `tests.hostile.guard` sees.

The pickles are written by hand: nothing of this project imports the module that reads them.
"""

import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

from hypothesis import strategies as st

_ODD = (
    "\\\\host\\share\\evil", "%USERPROFILE%/evil", "$(touch evil)", "`touch evil`", "evil\0.csv",
    "evil\n", "\nevil", "\x1b[31mevil", "evil\x7f", "\u202eevil", "ev\u200bil", "\ud800evil",
    "%2e%2e/evil", "..%2fevil", "\uff0e\uff0e/evil", "..\u2215evil", "..\u2044evil", "x" * 300,
    "x/" * 3000 + "x", "é" * 150, "-rf", "--help", "CON", "NUL", "aux.csv", "evil.", " evil",
    "evil ", "a:b", ".pulled.json", "evil.relay-part", ".git/hooks/post-checkout",
    "pipeline/__init__.py", "sitecustomize.py", "<b>evil", "'; DROP", "~root/evil", "C:evil",
    "/evil-of-a-test",
)  # fmt: skip


def names(top: Path) -> st.SearchStrategy[str]:
    """Return names that lead out of a folder, are none on some system, or are taken for more than a
    name.

    Args:
        top: of the guard; absolute ones lie in it.
    """
    part = st.sampled_from(("..", ".", "", "a", "evil", "new", "~", "C:", "$HOME"))
    start = st.sampled_from(("", "/", f"{top}/", f"//{top}/", "C:/", "~/"))
    between = st.sampled_from(("/", "/", "\\"))
    built = st.builds(
        lambda start, parts, sign: start + sign.join(parts),
        start,
        st.lists(part, max_size=6),
        between,
    ).filter(lambda name: not name.startswith(("/e", "/a", "/n", "/.")) or str(top) in name)
    return st.sampled_from(_ODD) | built | st.text(max_size=20)


def pickles(marker: Path) -> dict[str, bytes]:
    """Return pickles that make the file `marker` when they are read."""
    path = str(marker).encode()
    return {
        "a pickle that opens a file": b"c__builtin__\nopen\n(S'" + path + b"'\nS'w'\ntR.",
        "a pickle that starts a shell": b"cos\nsystem\n(S'touch " + path + b"'\ntR.",
        "a pickle of protocol 4": b"\x80\x04%s%s\x93%s%s\x86R."
        % tuple(b"\x8c" + bytes([len(word)]) + word for word in (b"builtins", b"open", path, b"w")),
    }


def npy(
    content: bytes,
    *,
    descr: str = "'|u1'",
    order: str = "False",
    shape: str = "(2, 8, 8)",
    head: str = "",
    version: bytes = b"\x01\0",
) -> bytes:
    """Return a .npy file with this header, however wrong; `head` replaces the dictionary."""
    text = head or f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    size = 10 if version == b"\x01\0" else 12
    text += " " * (-(size + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if size == 10 else "<I", len(text))
    return b"\x93NUMPY" + version + length + text.encode("latin1") + content


def objects(pickle: bytes) -> bytes:
    """Return a .npy file of objects, which whoever reads it has to unpickle."""
    return npy(pickle, descr="'|O'", shape="(1,)")


def arrays(marker: Path, rows: int) -> dict[str, bytes]:
    """Return what can be in the place of a .npy file of uint8 images (rows, 8, 8)."""
    size = rows * 64
    pixels, shape = bytes(size), f"({rows}, 8, 8)"
    good = npy(pixels, shape=shape)
    begins = "{'descr': '|u1', 'fortran_order': False, 'shape': "
    called = f"(open({str(marker)!r}, 'w'), 8, 8)}}"
    bare = pickles(marker)
    return {
        **{f"{name}, as objects": objects(pickle) for name, pickle in bare.items()},
        **{f"{name}, bare": pickle for name, pickle in bare.items()},
        "objects in a record": npy(pixels, descr="[('a', '|O'), ('b', '|u1')]", shape=shape),
        "a shape of 10^12": npy(pixels, shape="(1000000000000,)"),
        "a shape that overflows to few": npy(pixels, shape=f"({2**32}, {2**32}, 8)"),
        "a negative shape": npy(pixels, shape="(-1, 8, 8)"),
        "a shape of texts": npy(pixels, shape="('a',)"),
        "a call in its header": npy(pixels, head=begins + called),
        "a deep header": npy(pixels, head="(" * 3000 + ")" * 3000),
        "cut off": good[:-100],
        "Fortran's order": npy(pixels, order="True", shape=shape),
        "big-endian": npy(bytes(size * 2), descr="'>u2'", shape=shape),
        "dates": npy(bytes(size * 8), descr="'<M8[s]'", shape=shape),
        "followed by a pickle": good + next(iter(bare.values())),
        "empty": b"",
        "a zip in its place": archive(("x.npy", good)),
    }


def archive(*members: tuple[str, bytes], kind: int = 0, method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of these members, by any name.

    Args:
        kind: of the first of them by its mode: a link, a pipe, a device, a folder.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as packed:
        for name, content in members:
            member = zipfile.ZipInfo("x", (1980, 1, 1, 0, 0, 0))
            member.filename = name  # as it is: the constructor would cut and mend it
            member.create_system, member.external_attr = 3, (kind or stat.S_IFREG) << 16
            member.compress_type, kind = method, 0
            packed.writestr(member, content)
    return buffer.getvalue()


def zips(name: str, content: bytes) -> dict[str, bytes]:
    """Return archives of which a careless reader makes files elsewhere, links, or far too many
    bytes.

    Args:
        name, content: of the one member that is expected.
    """
    good, bad = (name, content), (name, b"evil")
    whole, bomb = archive(good), archive((name, bytes(2**26)), method=zipfile.ZIP_DEFLATED)
    listed = whole.index(b"PK\x01\x02")

    def other(place: int, value: bytes) -> bytes:
        """Return the archive with other bytes at this place of its list."""
        start = listed + place
        return whole[:start] + value + whole[start + len(value) :]

    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w:gz") as packed:
        packed.addfile(tarfile.TarInfo("../../evil"))
    return {
        "a link": archive((name, b"../../evil"), kind=stat.S_IFLNK),
        "a file through a link": archive(("l", b"../.."), ("l/evil", content), kind=stat.S_IFLNK),
        "a device": archive((name, b""), kind=stat.S_IFBLK),
        "another name": archive(("y.csv", content)),
        "one name twice": archive(good, bad),
        "ten thousand members": archive(*((str(number), b"") for number in range(10_000))),
        "encrypted": other(8, b"\1\0"),
        "another sum": whole.replace(content, b"X" + content[1:], 1),
        "cut off": whole[:-10],
        "another size by its list": other(24, struct.pack("<I", len(content) - 1)),
        "4 GB by its list": other(24, struct.pack("<I", 2**32 - 2)),
        "a bomb": bomb,
        "a bomb in a bomb": archive((name, bomb)),
        "a tar": tarred.getvalue(),
    }
