"""Add a new head with pooling, dropout and a dense layer to published networks.

The head is randomly initialized, so it is trained at the full learning rate. See `is_new`.
"""

from typing import Any

import keras
from keras import layers, ops

LOGITS, NEW = "logits", "head_"  # name of the last layer, and prefix of the other names
POOLS = ("auto", "token", "mean", "gem", "attention")


def is_new(layer: Any) -> bool:
    return bool(layer.name == LOGITS or layer.name.startswith(NEW))


class GeM(layers.Layer):  # type: ignore[misc]
    """Generalized mean pooling over positions, with a learned power (initially 3, as in Radenovic
    et al. 2018, arXiv:1711.02512). A power of 1 gives the mean, and large powers approach the
    maximum.
    """

    def build(self, shape: Any) -> None:
        del shape
        self.power = self.add_weight(
            name="power", shape=(), initializer=keras.initializers.Constant(3.0), dtype="float32"
        )

    def call(self, inputs: Any) -> Any:
        positive = ops.maximum(ops.cast(inputs, "float32"), 1e-6)
        mean = ops.mean(positive**self.power, axis=1) ** (1.0 / self.power)
        return ops.cast(mean, self.compute_dtype)


def logits(
    outputs: Any, num_classes: int, dropout: float, pool: str, *, token: bool = False, skip: int = 0
) -> Any:
    """Apply the head to a network's outputs, and return float32 logits (batch, num_classes).

    Args:
        outputs: feature map (batch, height, width, features), tokens (batch, tokens, features), or
            vectors (batch, features).
        pool: how to pool positions: "mean", "gem" (`GeM`), "token" (the first token) or
            "attention". With "attention", the mean attends to all positions, using one attention
            head per 64 features (Radford et al. 2021, arXiv:2103.00020). "auto" selects "token" if
            `token` is set, and "mean" otherwise.
        token: whether the first token represents the example.
        skip: number of extra tokens before the positions. "mean" and "gem" ignore them.
    """
    rank, x = len(outputs.shape), outputs
    possible = {2: ("auto",), 4: POOLS[:1] + POOLS[2:]}.get(rank, POOLS if token else POOLS[2:])
    if pool not in possible:
        raise ValueError(
            f"pool={pool!r} does not support outputs of shape {tuple(outputs.shape)}; expected"
            f" {', '.join(map(repr, possible))}"
        )
    if rank == 4:
        x = layers.Reshape((-1, x.shape[-1]), name=f"{NEW}positions")(x)
    if pool == "token" or (pool == "auto" and rank == 3 and token):
        x = x[:, 0]
    elif pool == "attention":
        x = _attention(x)
    elif rank > 2:
        places = x[:, skip:] if skip else x
        named = GeM if pool == "gem" else layers.GlobalAveragePooling1D
        x = named(name=f"{NEW}pool")(places)
    x = layers.Dropout(dropout, name=f"{NEW}dropout")(x)
    return layers.Dense(num_classes, dtype="float32", name=LOGITS)(x)


def _attention(tokens: Any) -> Any:
    width = tokens.shape[-1]
    heads = max(width // 64, 1)
    query = layers.GlobalAveragePooling1D(keepdims=True, name=f"{NEW}query")(tokens)
    attend = layers.MultiHeadAttention(heads, width // heads, name=f"{NEW}attention")
    return layers.Reshape((width,), name=f"{NEW}pool")(attend(query, tokens))
