"""A stand-in for KerasHub where it is not installed: real Keras models under the names of four of
its classes, small, with the arguments, the inputs and the outputs of the real ones.
"""

from types import SimpleNamespace

import keras
from keras import layers

__version__ = "0 (a stand-in)"


class Backbone(keras.Model):
    """A model that is made by its numbers."""

    def __init__(self, inputs, outputs, numbers, name=None):
        super().__init__(inputs, outputs, name=name)
        self.numbers = numbers

    @classmethod
    def from_config(cls, config):
        """Return a model of these arguments."""
        return cls(**config)


class _Patches(Backbone):
    def __init__(self, image_shape, patch_size, hidden_dim, name=None, **numbers):
        entry = {self.entry: keras.Input(image_shape, name=self.entry)}
        x = layers.Conv2D(hidden_dim, patch_size, patch_size)(entry[self.entry])
        x = layers.Reshape((-1, hidden_dim))(x)
        if self.places:  # one for each patch
            x = layers.EinsumDense("bnd,nd->bnd", (x.shape[1], hidden_dim))(x)
        x = layers.LayerNormalization()(layers.Dense(hidden_dim, "gelu")(x))
        super().__init__(entry, x, {"hidden_dim": hidden_dim, **numbers}, name)


class DINOV3Backbone(_Patches):
    """It takes any size."""

    entry, places = "pixel_values", False


class ViTBackbone(_Patches):
    """It takes one size."""

    entry, places = "images", True


class EfficientNetBackbone(Backbone):
    """A map, and BatchNormalization."""

    def __init__(self, input_shape, stackwise_output_filters, name=None, **numbers):
        start = x = keras.Input(input_shape)
        for filters in stackwise_output_filters:
            x = layers.Conv2D(filters, 3, 2, padding="same", use_bias=False)(x)
            x = layers.Activation("silu")(layers.BatchNormalization()(x))
        super().__init__(start, x, numbers, name)


class RobertaBackbone(Backbone):
    """Tokens."""

    def __init__(self, vocabulary_size, hidden_dim, name=None, **numbers):
        entry = {
            key: keras.Input((None,), dtype="int32", name=key)
            for key in ("token_ids", "padding_mask")
        }
        x = layers.Embedding(vocabulary_size, hidden_dim)(entry["token_ids"])
        x = x * keras.ops.cast(entry["padding_mask"], x.dtype)[..., None]
        super().__init__(entry, layers.LayerNormalization()(x), numbers, name)


models = SimpleNamespace(
    Backbone=Backbone,
    DINOV3Backbone=DINOV3Backbone,
    ViTBackbone=ViTBackbone,
    EfficientNetBackbone=EfficientNetBackbone,
    RobertaBackbone=RobertaBackbone,
)
