"""Payloads: archives, arrays and names made to write where they should not, or to run code: each
would leave a mark that `proofs.hostile.guard` sees.

The pickles are written by hand: nothing of this project imports the module that reads them.
"""

import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

ZIP = zipfile.ZipInfo
# Texts that a page must show, and not follow.
HTML = (
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>",
    "</style></title><script src=//example.com/x></script>", "javascript:alert(1)",
    "<svg onload=alert(1)>", "<iframe src=file:///etc/hostname>", "<base href=//example.com>",
    "]]><script>1</script>", "<!--", "&lt;script&gt;", "\u202e<b>", "{{7*7}}", "${7*7}",
    "<meta http-equiv=refresh content=0;url=//example.com>", "<a href=javascript:1>x</a>",
)  # fmt: skip
# What is no config's name.
CONFIG_NAMES = (
    "../../evil", "/etc/hostname", "~/.bashrc", "..", ".", "", "digits/../digits", "digits.py",
    "digits\n", "DIGITS", "__init__", "os", "sys", "pipeline.configs.digits", "-c",
    "digits;touch evil", "$(touch evil)", "file:///etc/hostname.py", "http://example.com/x.py",
    "../x.npy.py", "evil.py", "/dev/null.py", "a/b/c.py", "x" * 300, "\u202edigits", "digits\x7f",
)  # fmt: skip


def names(top: Path) -> tuple[str, ...]:
    """Return names that lead out of a folder, are none on some system, or are taken for more than a
    name.

    `top`: of the guard; absolute ones lie in it.
    """
    return (
        "../evil", "../../evil", "../../../evil", "a/../../evil", "a/../../../../evil", "./../evil",
        "a/b/../../../evil", "..", ".", "", f"{top}/evil", f"//{top}/evil", f"{top}/new/evil",
        "/evil-of-a-test", "a//evil", "a/./evil", "/", "a/", "../", "..\\evil", "a\\..\\..\\evil",
        "C:\\evil", "C:evil", "C:/evil", "\\\\host\\share\\evil", "\\evil", "a/..\\../evil",
        "~/.bashrc", "~root/evil", "~", "$HOME/evil", "${HOME}/evil", "%USERPROFILE%/evil",
        "$(touch evil)", "`touch evil`", ";touch evil", "evil\0.csv", "../evil\0", "evil\n",
        "\nevil", "\x1b[31mevil", "evil\x7f", "evil\r", "\u202eevil", "ev\u200bil", "\ud800evil",
        "%2e%2e/evil", "..%2fevil", "%2e%2e%2fevil", "\uff0e\uff0e/evil", "..\u2215evil",
        "..\u2044evil", "．．/evil", "x" * 300, "x/" * 30 + "x", "x/" * 3000 + "x", "é" * 150,
        "-rf",
        "--help", "CON", "NUL", "aux.csv", "evil.", " evil", "evil ", "a:b", ".pulled.json",
        "evil.relay-part", ".git/hooks/post-checkout", "pipeline/__init__.py", "sitecustomize.py",
        "<b>evil", "'; DROP",
    )  # fmt: skip


def pickles(marker: Path) -> dict[str, bytes]:
    """Return pickles that make the file `marker` when they are read."""
    path = str(marker).encode()
    return {
        "a pickle that opens a file": b"c__builtin__\nopen\n(S'" + path + b"'\nS'w'\ntR.",
        "a pickle that starts a shell": b"cos\nsystem\n(S'touch " + path + b"'\ntR.",
        "a pickle of protocol 4": _protocol_4(path),
    }


def _protocol_4(path: bytes) -> bytes:
    def text(word: bytes) -> bytes:
        return b"\x8c" + bytes([len(word)]) + word

    return (
        b"\x80\x04"
        + text(b"builtins")
        + text(b"open")
        + b"\x93"
        + text(path)
        + text(b"w")
        + b"\x86R."
    )


# Arrays


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


def npz(members: dict[str, bytes] | list[tuple[str, bytes]], *, deflated: bool = False) -> bytes:
    """Return an archive of these members, also of several with one name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(
        buffer, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    ) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(
                ZIP(name, (1980, 1, 1, 0, 0, 0)),
                content,
                compress_type=zipfile.ZIP_DEFLATED if deflated else None,
            )
    return buffer.getvalue()


def arrays(marker: Path, rows: int) -> dict[str, bytes]:
    """Return what can be in the place of a .npy file of uint8 images (rows, 8, 8)."""
    size = rows * 64
    pixels, shape = bytes(size), f"({rows}, 8, 8)"
    good = npy(pixels, shape=shape)
    found = {
        f"{name}, as objects": npy(content, descr="'|O'", shape="(1,)")
        for name, content in pickles(marker).items()
    }
    found |= {f"{name}, bare": content for name, content in pickles(marker).items()}
    found |= {
        "objects in a record": npy(bytes(size), descr="[('a', '|O'), ('b', '|u1')]", shape=shape),
        "objects by another name": npy(bytes(size * 8), descr="'object'", shape=shape),
        "a shape of 10^12": npy(pixels, shape="(1000000000000,)"),
        "a shape of 10^30": npy(pixels, shape=f"({10**30}, 8, 8)"),
        "a shape that overflows to few": npy(pixels, shape=f"({2**32}, {2**32}, 8)"),
        "a negative shape": npy(pixels, shape="(-1, 8, 8)"),
        "a shape of texts": npy(pixels, shape="('a',)"),
        "a shape of floats": npy(pixels, shape="(2.0, 8, 8)"),
        "a shape of truth values": npy(pixels, shape="(True, 8, 8)"),
        "no shape": npy(pixels, head="{'descr': '|u1', 'fortran_order': False}"),
        "a call in its header": npy(
            pixels,
            head="{'descr': '|u1', 'fortran_order': False, 'shape': "
            f"(open({str(marker)!r}, 'w'), 8, 8)}}",
        ),
        "an import in its header": npy(pixels, head=f"__import__('os').system('touch {marker}')"),
        "a deep header": npy(pixels, head="(" * 3000 + ")" * 3000),
        "a long header": npy(
            pixels, head="{'descr': '|u1', 'fortran_order': False, 'shape': (" + "1, " * 5000 + ")}"
        ),
        "cut off": good[:-100],
        "cut in its header": good[:30],
        "its magic alone": good[:8],
        "another magic": b"\x93NUMPX" + good[6:],
        "version 9": npy(pixels, shape=shape, version=b"\x09\0"),
        "version 3": npy(pixels, shape=shape, version=b"\x03\0"),
        "Fortran's order": npy(pixels, order="True", shape=shape),
        "big-endian": npy(bytes(size * 2), descr="'>u2'", shape=shape),
        "dates": npy(bytes(size * 8), descr="'<M8[s]'", shape=shape),
        "texts": npy(bytes(size * 4), descr="'<U1'", shape=shape),
        "no bytes each": npy(b"", descr="'|V0'", shape=shape),
        "followed by a pickle": good + next(iter(pickles(marker).values())),
        "empty": b"",
        "a zip in its place": npz({"x.npy": good}),
    }
    return found


def archives_of_arrays(marker: Path, rows: int) -> dict[str, bytes]:
    """Return what can be in the place of a .npz file with one such array."""
    good, bad = (
        npy(bytes(rows * 64), shape=f"({rows}, 8, 8)"),
        next(iter(arrays(marker, rows).values())),
    )
    return {
        "a pickle in it": npz({"x.npy": bad}),
        "a pickle without .npy": npz({"x": pickles(marker)["a pickle that opens a file"]}),
        "a name that climbs": npz({"../../evil.npy": good}),
        "an absolute name": npz({f"{marker.parent}/evil.npy": good}),
        "a name twice": npz([("x.npy", good), ("x.npy", bad)]),
        "two arrays": npz({"x.npy": good, "y.npy": bad}),
        "no array": npz({}),
        "a bomb": npz({"x.npy": npy(bytes(2**26), shape=f"({2**26},)")}, deflated=True),
        "another's sum": _other_sum(npz({"x.npy": good})),
        "cut off": npz({"x.npy": good})[:-40],
        "a pickle that is called so": pickles(marker)["a pickle of protocol 4"],
    }


def _other_sum(content: bytes) -> bytes:
    place = content.index(b"\x93NUMPY") + 100
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


# Archives


def zips(top: Path, name: str = "x.csv", content: bytes = b"id,label\n1,2\n") -> dict[str, bytes]:
    """Return archives of which a careless reader makes files elsewhere, links, or far too many
    bytes. `name`: what is expected inside.
    """
    made = {
        f"a member called {evil[:40]!r}": _zip((_named(evil), content))
        for evil in names(top)
        if _can_be_packed(evil)
    }
    made |= {
        "the right name behind ..": _zip((_named(f"../../{name}"), content)),
        "the right name behind /": _zip((_named(f"{top}/{name}"), content)),
        "the right name behind \\": _zip((_named(f"..\\{name}"), content)),
        "a link": _zip((_typed(name, stat.S_IFLNK), b"../../evil")),
        "a link, and a file through it": _zip(
            (_typed("l", stat.S_IFLNK), b"../.."), (_named("l/evil"), content)
        ),
        "a device": _zip((_typed(name, stat.S_IFBLK), b"")),
        "a pipe": _zip((_typed(name, stat.S_IFIFO), b"")),
        "a folder by its kind": _zip((_typed(name, stat.S_IFDIR), content)),
        "one name twice": _zip((_named(name), content), (_named(name), b"evil")),
        "two cases of one name": _zip((_named("X.csv"), content), (_named("x.csv"), b"evil")),
        "a file and a folder of one name": _zip((_named("a"), content), (_named("a/b"), b"evil")),
        "ten thousand members": _zip(*((_named(f"{number}"), b"") for number in range(10_000))),
        "no member": _zip(),
        "encrypted": _flagged(_zip((_named(name), content))),
        "another sum": _zip((_named(name), content)).replace(content, b"X" + content[1:], 1),
        "cut off": _zip((_named(name), content))[:-10],
        "another size by its list": _sized(_zip((_named(name), content)), len(content) - 1),
        "30 GB by its list": _sized(_zip((_named(name), content)), 30 * 10**9 % 2**32),
        "a bomb of 100 MB in 100 kB": _packed(name, 100 * 2**20),
        "a bomb in a bomb": _zip((_named(name), _packed(name, 2**20))),
        "an unknown method": _method(_zip((_named(name), content)), 99),
        "bytes before it": b"evil" * 100 + _zip((_named(name), content)),
        "a comment of 64 kB": _zip((_named(name), content), comment=b"<script>" * 8000),
        "a name of other bytes in its list": _renamed(
            _zip((_named("x.csv"), content)), b"x.csv", b"/evil"
        ),
    }
    return made


def tars(top: Path) -> dict[str, bytes]:
    """Return tar files whose extraction would write elsewhere."""
    made = {}
    for name, kind, link in (
        ("../../evil", tarfile.REGTYPE, ""),
        (f"{top}/evil", tarfile.REGTYPE, ""),
        ("x", tarfile.SYMTYPE, "../../evil"),
        ("x", tarfile.LNKTYPE, "../../evil"),
        ("x", tarfile.BLKTYPE, ""),
        ("x", tarfile.FIFOTYPE, ""),
    ):
        buffer, member = io.BytesIO(), tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, 4 if kind == tarfile.REGTYPE else 0
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            archive.addfile(member, io.BytesIO(b"evil"))
        made[f"a tar with {name[-20:]!r} of type {kind.decode()!r}"] = buffer.getvalue()
    return made


def _can_be_packed(name: str) -> bool:
    return "\ud800" not in name and 0 < len(name.encode()) < 60_000


def _named(name: str) -> ZIP:
    member = ZIP("x", (1980, 1, 1, 0, 0, 0))
    member.filename = name  # as it is: the constructor would cut and mend it
    return member


def _typed(name: str, kind: int) -> ZIP:
    member = _named(name)
    member.create_system, member.external_attr = 3, (kind | 0o777) << 16
    return member


def _zip(*members: tuple[ZIP, bytes], comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, content in members:
            archive.writestr(member, content)
        archive.comment = comment
    return buffer.getvalue()


def _packed(name: str, size: int) -> bytes:
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w") as file,
    ):
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
    return buffer.getvalue()


def _central(content: bytes, place: int, value: bytes) -> bytes:
    """Return the archive with other bytes at this place of the first entry of its list."""
    start = content.index(b"PK\x01\x02") + place
    return content[:start] + value + content[start + len(value) :]


def _flagged(content: bytes) -> bytes:
    return _central(content[:6] + b"\x01\0" + content[8:], 8, b"\x01\0")


def _sized(content: bytes, size: int) -> bytes:
    return _central(content, 24, struct.pack("<I", size))


def _method(content: bytes, number: int) -> bytes:
    return _central(
        content[:8] + struct.pack("<H", number) + content[10:], 10, struct.pack("<H", number)
    )


def _renamed(content: bytes, old: bytes, new: bytes) -> bytes:
    return _central(content, 46, new) if content.count(old) >= 2 else content
