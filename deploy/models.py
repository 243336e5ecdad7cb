"""Models: the published networks that Kaggle mounts: their names, their pages, whether they are
there.

A name is owner/model/framework/variation/version, as kagglehub takes it.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from deploy.errors import UNTOLD, Denied, NotFound, SourceMissing
from deploy.events import Note, Steps

if TYPE_CHECKING:
    from deploy.client import Kaggle

# As Kaggle writes them in a name.
FRAMEWORKS = (
    *("TensorFlow1", "TensorFlow2", "TfLite", "TfJs", "PyTorch", "Jax", "Flax", "Pax", "MaxText"),
    *("GemmaCpp", "Ggml", "Gguf", "Coral", "ScikitLearn", "Mxnet", "Onnx", "Keras", "Transformers"),
    *("Api", "Other", "TensorRtLlm", "Triton", "Vllm"),
)
SLUG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
NAME = rf"{SLUG}/{SLUG}/({'|'.join(FRAMEWORKS)})/{SLUG}/[1-9][0-9]{{0,8}}"
EXAMPLE = "keras/dinov3/keras/dinov3_vit_base_lvd1689m/1"


def spelled(name: str) -> str:
    """Return a name with the framework as Kaggle writes it. Any other text stays as it is.

    >>> spelled("keras/dinov3/keras/dinov3_vit_base_lvd1689m/1")
    'keras/dinov3/Keras/dinov3_vit_base_lvd1689m/1'
    """
    known = {framework.lower(): framework for framework in FRAMEWORKS}
    return "/".join(
        known.get(part.lower(), part) if place == 2 else part
        for place, part in enumerate(name.split("/"))
    )


def word(framework: str) -> str:
    """Return how kagglesdk calls a framework.

    >>> word("TensorFlow2")
    'MODEL_FRAMEWORK_TENSOR_FLOW_2'
    """
    return "MODEL_FRAMEWORK" + re.sub("(?=[A-Z0-9])", "_", framework).upper()


def pages(names: Iterable[str]) -> str:
    """Return the pages of models, one a line; a licence is accepted there.

    >>> pages(["keras/dinov3/Keras/dinov3_vit_base_lvd1689m/1"])
    'https://www.kaggle.com/models/keras/dinov3'
    """
    models = dict.fromkeys("/".join(name.split("/")[:2]) for name in names)
    return "\n".join(f"https://www.kaggle.com/models/{model}" for model in models)


def require(kaggle: "Kaggle", names: Iterable[str], kernel: str) -> Steps[None]:
    """Return once Kaggle shows this account each model that a kernel mounts. Where it does not tell
    of one, a note says so: a limited token may not ask, and yet push it. The push itself names a
    model that is missing.

    Raises:
        SourceMissing: if one is not there. Kaggle would start the run without it.
        Denied: if Kaggle says that a licence is not accepted.
    """
    for name in names:
        try:
            kaggle.look_at_model(name)
        except UNTOLD as error:
            said = str(error).partition("\n")[0]
            if isinstance(error, Denied) and error.gate:
                raise Denied(f"{error}\n{pages([name])}", error.gate) from error
            if isinstance(error, NotFound):
                raise SourceMissing(
                    f"{said}\n{kernel} mounts the model {name}; expected Kaggle to show it to"
                    f" {kaggle.username}. If it has a licence, accept it on its page, and run the"
                    " same command again. If it does not exist, correct pretrained in the config,"
                    f" or model_sources in kernel-metadata.json.\n{pages([name])}",
                    ("model_sources",),
                ) from error
            if isinstance(error, Denied):  # its further lines say what may be the cause
                said = f"{error}\n{pages([name])}"
            yield Note(f"Not known whether Kaggle has the model {name}: {said}")
