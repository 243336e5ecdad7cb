"""Names and licences of the Kaggle models that notebooks mount as pretrained networks.

Model names have the form owner/model/framework/variation/version, as in kagglehub.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from deploy.errors import UNTOLD, Denied, NotFound, SourceMissing
from deploy.events import Note, Steps

if TYPE_CHECKING:
    from deploy.client import Kaggle

# In Kaggle's spelling.
FRAMEWORKS = (
    *("TensorFlow1", "TensorFlow2", "TfLite", "TfJs", "PyTorch", "Jax", "Flax", "Pax", "MaxText"),
    *("GemmaCpp", "Ggml", "Gguf", "Coral", "ScikitLearn", "Mxnet", "Onnx", "Keras", "Transformers"),
    *("Api", "Other", "TensorRtLlm", "Triton", "Vllm"),
)
SLUG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
NAME = rf"{SLUG}/{SLUG}/({'|'.join(FRAMEWORKS)})/{SLUG}/[1-9][0-9]{{0,8}}"
EXAMPLE = "keras/dinov3/keras/dinov3_vit_base_lvd1689m/1"


def spelled(name: str) -> str:
    """Return a name with Kaggle's spelling of the framework. Any other text is returned unchanged.

    >>> spelled("keras/dinov3/keras/dinov3_vit_base_lvd1689m/1")
    'keras/dinov3/Keras/dinov3_vit_base_lvd1689m/1'
    """
    known = {framework.lower(): framework for framework in FRAMEWORKS}
    return "/".join(
        known.get(part.lower(), part) if place == 2 else part
        for place, part in enumerate(name.split("/"))
    )


def word(framework: str) -> str:
    """Return kagglesdk's name for a framework.

    >>> word("TensorFlow2")
    'MODEL_FRAMEWORK_TENSOR_FLOW_2'
    """
    return "MODEL_FRAMEWORK" + re.sub("(?=[A-Z0-9])", "_", framework).upper()


def pages(names: Iterable[str]) -> str:
    """Return the URLs of the pages where the models' licences can be accepted, one per line.

    >>> pages(["keras/dinov3/Keras/dinov3_vit_base_lvd1689m/1"])
    'https://www.kaggle.com/models/keras/dinov3'
    """
    models = dict.fromkeys("/".join(name.split("/")[:2]) for name in names)
    return "\n".join(f"https://www.kaggle.com/models/{model}" for model in models)


def require(kaggle: "Kaggle", names: Iterable[str], kernel: str) -> Steps[None]:
    """Check that this account has access to all models mounted by a kernel.

    If this cannot be checked, a note is yielded instead of an error, because some tokens can mount
    a model but cannot list its files. Kaggle also reports missing models in its response to the
    push.

    Raises:
        SourceMissing: if a model does not exist. Kaggle would start the run without that model.
        Denied: if a licence has not been accepted.
    """
    for name in names:
        try:
            kaggle.look_at_model(name)
        except UNTOLD as error:
            why = str(error).partition("\n")[0]
            if isinstance(error, Denied) and error.gate:
                raise Denied(f"{error}\n{pages([name])}", error.gate) from error
            if isinstance(error, NotFound):
                raise SourceMissing(
                    f"{why}\n{kernel} mounts the model {name}, but {kaggle.username} does not"
                    " have access to it. If it has a licence, accept it on the model's page, and"
                    " run the same command again. If it does not exist, correct the setting"
                    " pretrained in the config, or model_sources in kernel-metadata.json.\n"
                    f"{pages([name])}",
                    ("model_sources",),
                ) from error
            if isinstance(error, Denied):  # its other lines list possible causes
                why = f"{error}\n{pages([name])}"
            yield Note(f"Could not check that Kaggle has the model {name}: {why}")
