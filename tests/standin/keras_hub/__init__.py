"""A stand-in for KerasHub where it is not installed: real Keras models under the names of five of
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


class Block(layers.Layer):
    """Attention, and a dense layer."""

    def __init__(self, heads, width):
        super().__init__()
        self.norm = layers.LayerNormalization()
        self.attention = layers.MultiHeadAttention(heads, width // heads)
        self.dense = layers.Dense(width, "gelu")

    def build(self, shape):
        """Make the weights of all."""
        self.norm.build(shape)
        self.attention.build(shape, shape)
        self.dense.build(shape)

    def call(self, x):
        """Return as many tokens."""
        normal = self.norm(x)
        return x + self.dense(self.attention(normal, normal))


class Encoder(layers.Layer):
    """Blocks, one after the other."""

    def __init__(self, blocks, heads, width):
        super().__init__()
        self.blocks = [Block(heads, width) for _ in range(blocks)]

    def build(self, shape):
        """Make the weights of all."""
        for block in self.blocks:
            block.build(shape)

    def call(self, x):
        """Return as many tokens."""
        for block in self.blocks:
            x = block(x)
        return x


class Embedding(layers.Layer):
    """Patches as tokens, with first ones of their own, and a place for each."""

    def __init__(self, patch, width, first, places):
        super().__init__()
        self.patches = layers.Conv2D(width, patch, patch)
        self.width, self.first, self.places = width, first, places

    def build(self, shape):
        """Make the weights."""
        self.patches.build(shape)
        _, high, wide, _ = self.patches.compute_output_shape(shape)
        if self.first:
            self.tokens = self.add_weight(name="tokens", shape=(1, self.first, self.width))
        if self.places:
            self.embedding = layers.Embedding(
                high * wide + self.first, self.width, name="position_embedding"
            )
            self.embedding.build()

    def call(self, images):
        """Return (batch, tokens, width)."""
        x = self.patches(images)
        x = keras.ops.reshape(x, (-1, x.shape[1] * x.shape[2], self.width))
        if self.first:
            tokens = keras.ops.broadcast_to(
                keras.ops.cast(self.tokens, x.dtype),
                (keras.ops.shape(x)[0], self.first, self.width),
            )
            x = keras.ops.concatenate([tokens, x], axis=1)
        return x + self.embedding(keras.ops.arange(x.shape[1])) if self.places else x


class _Patches(Backbone):
    pooled = False

    def __init__(
        self, image_shape, patch_size, hidden_dim, num_layers, num_heads, name=None, **numbers
    ):
        entry = {self.entry: keras.Input(image_shape, name=self.entry)}
        first = self.first + numbers.get("num_register_tokens", 0)
        x = Embedding(patch_size, hidden_dim, first, self.places)(entry[self.entry])
        x = Encoder(num_layers, num_heads, hidden_dim)(x)
        x = layers.LayerNormalization()(x)
        x = layers.GlobalAveragePooling1D()(x) if self.pooled else x
        super().__init__(entry, x, {"hidden_dim": hidden_dim, **numbers}, name)


class DINOV3Backbone(_Patches):
    """A class token, and no places that are learned."""

    entry, places, first = "pixel_values", False, 1


class ViTBackbone(_Patches):
    """A class token, and places."""

    entry, places, first = "images", True, 1


class SigLIPVisionEncoder(_Patches):
    """Places alone, and one vector per image."""

    entry, places, first, pooled = "images", True, 0, True


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
    SigLIPVisionEncoder=SigLIPVisionEncoder,
    EfficientNetBackbone=EfficientNetBackbone,
    RobertaBackbone=RobertaBackbone,
)
