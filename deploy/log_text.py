"""The log of a run as Kaggle stores it: a JSON array of pieces, which it may cut anywhere."""

import json
import re

from deploy.decoding import MALFORMED


def pieces(log: str) -> list[tuple[str, str]]:
    """Return (stream, text) of each piece; a log that is no such array is one piece.

    >>> pieces('[{"stream_name":"stdout","time":0.5,"data":"a b"}]')
    [('stdout', 'a b')]
    """
    try:
        return [
            (str(piece.get("stream_name", "")), str(piece["data"]))
            for piece in json.loads(log or "[]")
        ]
    except (*MALFORMED, RecursionError):
        return [("", log)]


def seconds(log: str) -> float | None:
    """Return the time of the last piece, after the session's start; None if none has one.

    >>> seconds('[{"stream_name":"stdout","time":0.5,"data":"a b"}]')
    0.5
    """
    try:
        return max((float(piece["time"]) for piece in json.loads(log or "[]")), default=None)
    except (*MALFORMED, RecursionError):
        return None


def lines(log: str) -> list[str]:
    """Return the lines.

    >>> lines('[{"data": "one l"}, {"data": "ine"}]')
    ['one line']
    """
    whole = "".join(data for _, data in pieces(log))
    # A piece may end inside a character. Its halves are joined; a single half is replaced.
    text = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n").split("\n") if text else []
