"""Whether a session reaches the internet, asked before it spends quota.

Kaggle gives none to an account whose phone is not verified, and does not say so: a public notebook
reports it (docs/facts.md).
"""

import socket

from pipeline.errors import DeviceError

# Where keras.applications gets published weights from.
WEIGHTS = ("storage.googleapis.com", 443)
SECONDS = 10.0
TRIES = 3


def prove(needed_for: str, address: tuple[str, int] = WEIGHTS) -> str:
    """Return a line that says that the internet is there.

    Args:
        needed_for: what needs it, for the message.
        address: host and port that it is needed from.

    Raises:
        DeviceError: if nobody answers there.
    """
    host, why = address[0], ""
    for _ in range(TRIES):
        try:
            socket.create_connection(address, SECONDS).close()
        except OSError as error:
            why = str(error.strerror or error)
        else:
            return f"Internet: {host} answers"
    raise DeviceError(
        f"This session has no internet: {host} does not answer ({why}). Expected it, for"
        f" {needed_for}.\n"
        "The run stops here, before it spends quota. Kaggle gives none to an account whose phone is"
        " not verified, and does not say so.\n"
        "Verify the phone at kaggle.com/settings, and push again. Or mount the weights as a"
        " dataset, and write pretrained='owner/slug/file' into the config. In a rehearsal:\n"
        "invoke dry-run --internet"
    )
