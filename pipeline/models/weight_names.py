"""Names of a model's and an optimizer's weights: the same in every process, Keras and build."""

import re
from typing import Any

# Keras counts what a layer did not name over the whole process (ConvNeXt's LayerScale). A layer has
# one such weight at most.
COUNTED = re.compile(r"(/variable)_\d+$")
COUNTED_INSIDE = re.compile(r"(_variable)_\d+(?=_|$)")


def weight(variable: Any) -> str:
    """Return the name of a weight: its path, without Keras' count."""
    return COUNTED.sub(r"\1", variable.path)


def place(number: int, variable: Any) -> str:
    """Return the name of a variable that only its place in a list identifies.

    These are an optimizer's and a seed's variables: their paths have a count (adam_2/…).
    """
    last = COUNTED_INSIDE.sub(r"\1", variable.path.split("/")[-1])
    return f"{number}/{last}"
