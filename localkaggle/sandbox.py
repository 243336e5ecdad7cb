"""Sandbox: the inside of one session. Started by `unshare` in new namespaces, it builds Kaggle's file system and becomes the notebook's process.

Reads  a JSON specification (see `build`)
Gives  a process whose root holds everything of this machine, read-only, and /kaggle as a session on Kaggle finds it

The host gets no /kaggle: the new root is a tmpfs with the host's entries bound into it, which an ordinary user may make too in a user namespace.
Uses the standard library alone; the interpreter may be another than the server's.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

# From <sys/mount.h> and <linux/mount.h>.
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
LOCKED = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME
SYS_MOUNT_SETATTR, AT_RECURSIVE, AT_FDCWD, MOUNT_ATTR_RDONLY = 442, 0x8000, -100, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Call mount(2). Raises `OSError` with the target's path."""
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    if LIBC.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Show `source`, and what is mounted below it, at `target`."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        seal(target)


def seal(target: str) -> None:
    """Make a mount, and what is mounted below it, read-only."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    if LIBC.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), AT_RECURSIVE, attributes, len(attributes)) == 0:
        return
    mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | (os.statvfs(target).f_flag & LOCKED))


def build(spec: dict[str, Any]) -> None:
    """Mount the new root.

    `spec` holds: root, an empty folder; working and tmp, folders that stay writable; inputs, [[folder, place below
    /kaggle/input], …]; hidden, folders of the host that look empty inside.
    """
    root = spec["root"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)  # nothing that follows is seen by the host
    mount("tmpfs", root, "tmpfs", 0, "mode=755")
    for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
        target = f"{root}/{entry.name}"
        if entry.name in ("kaggle", "lost+found", "proc"):
            continue
        if entry.is_symlink():
            Path(target).symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            Path(target).mkdir()
            bind(entry.path, target, read_only=entry.name not in ("dev", "tmp"))
        elif entry.is_file():
            Path(target).touch()
            bind(entry.path, target, read_only=True)
    Path(f"{root}/proc").mkdir()
    try:
        mount("proc", f"{root}/proc", "proc", 0)
    except PermissionError:
        bind("/proc", f"{root}/proc", read_only=False)  # some containers allow no new one; the old shows more processes
    for folder in spec["hidden"]:
        mount("tmpfs", root + folder, "tmpfs", MS_RDONLY, "mode=755,size=4k")
    for name in ("working", "tmp"):
        Path(f"{root}/kaggle/{name}").mkdir(parents=True)
        bind(spec[name], f"{root}/kaggle/{name}", read_only=False)
    Path(f"{root}/kaggle/input").mkdir()
    mount("tmpfs", f"{root}/kaggle/input", "tmpfs", 0, "mode=755")
    for source, place in spec["inputs"]:
        target = f"{root}/kaggle/input/{place}"
        Path(target).mkdir(parents=True)
        bind(source, target, read_only=True)
    seal(f"{root}/kaggle/input")


def loopback_up() -> None:
    """Switch on `lo`, which a new network namespace has switched off: a notebook's kernel is spoken to through it."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
        flags = struct.unpack("16sh", fcntl.ioctl(plug, get_flags, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(plug, set_flags, struct.pack("16sh", b"lo", flags | up))


def main() -> None:
    """Build what the specification in argv[1] says, and become its command."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    if spec["isolated"]:
        loopback_up()
    build(spec)
    os.chroot(spec["root"])
    os.chdir("/kaggle/working")
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])  # noqa: S606 - the notebook's own process


if __name__ == "__main__":
    main()
