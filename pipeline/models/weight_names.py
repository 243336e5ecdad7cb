"""Names: of a model's weights and an optimizer's, the same in every process, every Keras version
and every build.
"""

import re
from typing import Any

# What a layer did not name, Keras counts up over the whole process (ConvNeXt's LayerScale). A layer
# has one such at most.
COUNTED = re.compile(r"(/variable)_\d+$")
COUNTED_INSIDE = re.compile(r"(_variable)_\d+(?=_|$)")


def weight(variable: Any) -> str:
    """Return the name of a weight: its path, without what Keras counts up."""
    return COUNTED.sub(r"\1", variable.path)


def place(number: int, variable: Any) -> str:
    """Return the name of a variable that only its place in a list tells from others: of an
    optimizer, of a seed (adam_2/…).
    """
    last = COUNTED_INSIDE.sub(r"\1", variable.path.split("/")[-1])
    return f"{number}/{last}"
