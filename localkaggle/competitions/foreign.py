"""Foreign: a competition from elsewhere. A function makes it, so no label has to be on the disk."""

from importlib import import_module

from localkaggle.competitions.competition import Competition


def make(address: str) -> Competition:
    """Return the competition that the function at MODULE:FUNCTION makes without arguments.

    Raises:
        ValueError: if there is no such function, or if it makes something else.

    >>> make("localkaggle.competitions:diabetes").slug
    'diabetes'
    """
    module, _, name = address.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"{address!r} cannot be imported: {error}; expected MODULE:FUNCTION of this project,"
            " as proofs.competitions.unseen:unseen"
        ) from error
    made = function() if callable(function) else function
    if not isinstance(made, Competition):
        raise ValueError(
            f"{address!r} makes a {type(made).__name__};"
            " expected a localkaggle.competitions.Competition"
        )
    return made
