"""What helps where Kaggle refuses a dataset, or makes none of what it was sent."""

from deploy import failure_messages
from deploy.errors import Denied, Refused


def look_there(handle: str) -> str:
    """Return where Kaggle says what became of a dataset, and what is usually in its way."""
    return (
        f"Kaggle says why on its page: https://www.kaggle.com/datasets/{handle}\n"
        "If no room is left for your private datasets, Kaggle makes none: delete what you need no"
        " longer."
    )


def advice(error: Denied | Refused, handle: str, version: int | None) -> str:
    """Return what helps against a refusal of the dataset, or "".

    Args:
        version: that it has; None: there is no such dataset.
    """
    if version is None and failure_messages.IN_USE.search(str(error)):
        return (
            f"Another dataset or notebook of that name is there, or is being made:"
            f" https://www.kaggle.com/datasets/{handle}\nDelete it by hand, and publish again. Or"
            " mount the training's own output, without a dataset: write"
            ' handoff="kernel" into the config, and push the inference:\ninvoke push-infer'
        )
    if version is not None and isinstance(error, Denied) and not error.gate:
        return (
            "The dataset is yours. Kaggle also answers so while it still processes the version"
            f" before. Publish again in some minutes.\n{failure_messages.CAUSES}"
        )
    return ""
