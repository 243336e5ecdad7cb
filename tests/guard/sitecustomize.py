"""A guard that Python starts with when this folder is on PYTHONPATH: only the loopback can be
reached, and each try elsewhere is noted.

It listens to the interpreter's own audit events, so no library can go past it in Python.
"""

import ipaddress
import os
import sys
from pathlib import Path

_installed = False


def install() -> None:
    """Begin to watch; a second call does nothing."""
    global _installed
    if not _installed and os.environ.get("RELAY_NETWORK_VIOLATIONS"):
        sys.addaudithook(_watch)
    _installed = True


def _watch(event: str, arguments: tuple) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else "local"  # a text is a UNIX socket
    elif event == "socket.getaddrinfo" or event == "socket.gethostbyname":
        host = arguments[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "local", "localhost") or _loopback(name):
        return
    with Path(os.environ["RELAY_NETWORK_VIOLATIONS"]).open("a") as file:
        file.write(f"{event} {name} by {' '.join(sys.argv[:3])}\n")
    raise PermissionError(f"A test tried to reach {name}; only 127.0.0.1 may be reached.")


def _loopback(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


install()
