"""Set up Kaggle's file system, then replace this process with the notebook's process.

This file runs in new namespaces created by `unshare`, and reads a JSON specification (see `build`).
The notebook's process has read-only access to the programs on this machine. It also sees a /kaggle
folder with the same layout as on Kaggle.

The new root is a tmpfs with bind mounts of the host's files. Unprivileged users can create such
mounts in a user namespace. The /kaggle folder is not created on the host. The root does not include
the host's devices, sockets or temporary folders, the user's home, or this project. The process
lacks the capabilities to mount them again. This file only imports the standard library, because the
interpreter that runs it may differ from the server's.
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
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC = 1 << 10, 1 << 11, 1 << 12, 1 << 14
MS_PRIVATE, MS_RELATIME = 1 << 18, 1 << 21
LOCKED = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME
SYS_MOUNT_SETATTR, AT_RECURSIVE, AT_FDCWD, MOUNT_ATTR_RDONLY = 442, 0x8000, -100, 1
# From <asm/unistd.h> (for x86-64 and for newer architectures, which share the same numbers),
# <sys/mount.h> and <linux/prctl.h>.
SYS_PIVOT_ROOT = {"x86_64": 155}.get(os.uname().machine, 41)
MNT_DETACH, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 2, 24, 38
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    _check(LIBC.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]), target)


def _check(result: int, path: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Bind-mount `source` at `target`, including all mounts inside `source`."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        seal(target)


def seal(target: str) -> None:
    """Make a mount read-only, including all mounts inside it."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    arguments = AT_FDCWD, target.encode(), AT_RECURSIVE, attributes, len(attributes)
    if LIBC.syscall(SYS_MOUNT_SETATTR, *arguments) != 0:  # on older kernels, only seal this mount
        locked = os.statvfs(target).f_flag & LOCKED
        mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | locked)


def build(spec: dict[str, Any]) -> None:
    """Mount the new root.

    `spec` has the following keys. `root` is an empty folder. `working`, `tmp` and `private` are
    writable folders. `inputs` is a list of [folder, path in /kaggle/input]. `covered` lists folders
    of the host that appear empty, and `kept` lists paths inside them that remain visible.
    """
    root = spec["root"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)  # do not propagate mounts to the host
    mount("tmpfs", root, "tmpfs", 0, "mode=755")
    _host(root)
    for folder in spec["covered"]:
        if Path(root + folder).is_dir():
            mount("tmpfs", root + folder, "tmpfs", 0, "mode=755,size=1m")
    for place in ("tmp", "var/tmp"):
        Path(f"{root}/{place}").mkdir(parents=True, exist_ok=True)
        bind(spec["private"], f"{root}/{place}", read_only=False)
    for path in spec["kept"]:
        if not Path(root + path).exists():
            Path(root + path).parent.mkdir(parents=True, exist_ok=True)
            _show(path, root + path)
    for folder in spec["covered"]:
        if os.path.ismount(root + folder):  # mounts below /tmp are hidden by the private /tmp
            seal(root + folder)
    for name in ("working", "tmp"):
        Path(f"{root}/kaggle/{name}").mkdir()
        bind(spec[name], f"{root}/kaggle/{name}", read_only=False)
    Path(f"{root}/kaggle/input").mkdir()
    mount("tmpfs", f"{root}/kaggle/input", "tmpfs", 0, "mode=755")
    for source, place in spec["inputs"]:
        target = f"{root}/kaggle/input/{place}"
        Path(target).mkdir(parents=True)
        bind(source, target, read_only=True)
    seal(f"{root}/kaggle/input")


def _host(root: str) -> None:
    for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
        target = f"{root}/{entry.name}"
        if entry.name in ("kaggle", "lost+found", "proc", "dev", "tmp", "run"):
            continue
        if entry.is_symlink():
            Path(target).symlink_to(Path(entry.path).readlink())
        elif entry.is_dir() or entry.is_file():
            _show(entry.path, target)
    for name in ("proc", "dev", "tmp", "run", "kaggle"):
        Path(f"{root}/{name}").mkdir()
    try:
        mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except PermissionError:  # not allowed in some containers; the host's /proc lists more processes
        bind("/proc", f"{root}/proc", read_only=False)
    _devices(f"{root}/dev")


def _devices(folder: str) -> None:
    mount("tmpfs", folder, "tmpfs", MS_NOSUID, "mode=755")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        Path(f"{folder}/{name}").touch()
        bind(f"/dev/{name}", f"{folder}/{name}", read_only=False)
    for name, source in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        Path(f"{folder}/{name}").symlink_to(f"/proc/self/{source}")
    for name in ("shm", "pts"):
        Path(f"{folder}/{name}").mkdir()
    mount("tmpfs", f"{folder}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    options = "newinstance,ptmxmode=0666,mode=620"
    mount("devpts", f"{folder}/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
    Path(f"{folder}/ptmx").symlink_to("pts/ptmx")


def _show(source: str, target: str) -> None:
    if Path(source).is_dir():
        Path(target).mkdir()
    else:
        Path(target).touch()
    bind(source, target, read_only=True)


def enter(root: str) -> None:
    """Switch to the new root, unmount the old one, and drop the capabilities to mount it again."""
    os.chdir(root)
    Path("old").mkdir()
    _check(LIBC.syscall(SYS_PIVOT_ROOT, b".", b"old"), root)
    os.chdir("/")
    _check(LIBC.umount2(b"/old", MNT_DETACH), "/old")
    Path("/old").rmdir()
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    for capability in range(64):  # unknown capabilities are ignored
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def loopback_up() -> None:
    """Enable the loopback interface, which is disabled by default but needed by papermill."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
        answer = fcntl.ioctl(plug, get_flags, struct.pack("16sh", b"lo", 0))
        _, flags = struct.unpack("16sh", answer)
        fcntl.ioctl(plug, set_flags, struct.pack("16sh", b"lo", flags | up))


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    if spec["isolated"]:
        loopback_up()
    build(spec)
    enter(spec["root"])
    os.chdir("/kaggle/working")
    command = spec["command"]
    os.execvpe(command[0], command, spec["environment"])  # noqa: S606 - the notebook's process


if __name__ == "__main__":
    main()
