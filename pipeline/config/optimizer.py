"""The optimizer of a run, and the batch for which its numbers were tuned."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pipeline.config.rules import Checked, Conflict, choice, number, whole

SCHEDULES = ("cosine", "one_cycle", "constant")
# Far above any need, and far below what ends a run for lack of memory.
MOST_BATCH = 2**20
MOMENTUM = number(0, 0.999999)
SHARE = number(0, 1, open_ends=True)


@dataclass(frozen=True, kw_only=True)
class Optimizer(Checked):
    """An optimizer and the batch for which its numbers were tuned.

    `pipeline.train.learning_rate` scales them to another batch.

    Attributes:
        name: "sgd", "adam" or "adamw".
        base_rate: learning rate per optimizer step that worked at `base_batch`.
        base_batch: images per step, over all replicas, when it worked.
        momentum: of SGD, which is Nesterov's.
        beta_1, beta_2, epsilon: of Adam and AdamW.
        weight_decay: of SGD and AdamW, decoupled: each step takes learning rate x decay off the
            weights (as Keras does it), but for biases and normalization's scale and offset (Goyal
            et al. 2017, 1706.02677; He et al. 2018, 1812.01187). Adam has none.
        clip_norm: a mean gradient of a batch with a larger norm, over all weights together, is
            scaled down to it; 1 is usual. None: never.
        layer_decay: factor of the learning rate from one twelfth of the layers to the next, away
            from the head (`pipeline.models.backbones.learning_rate_factors`); 0.65 to 0.9 is usual
            for a pretrained network. 1: none.
        schedule: how the learning rate continues after the warm-up: "cosine" falls along a half
            cosine; "one_cycle" does so after a warm-up along another one; "constant" stays, and
            falls at the end (`pipeline.train.learning_rate.schedule`).
        decay_share: of "constant": the share of all steps in which it falls to 0; None: 0.2.
        ema_momentum: of an average of the weights, and of BatchNorm's statistics, that is used for
            evaluation and in the artifact; None: no average. In step t it is at most (1 + t) / (10
            + t), so that the random weights of the start soon disappear.
    """

    prefix = "optimizer."

    name: Annotated[str, choice("sgd", "adam", "adamw")]
    base_rate: Annotated[float, number(0, 100, open_ends=True)]
    base_batch: Annotated[int, whole(1, MOST_BATCH)]
    momentum: Annotated[float, MOMENTUM] = 0.9
    beta_1: Annotated[float, MOMENTUM] = 0.9
    beta_2: Annotated[float, MOMENTUM] = 0.999
    epsilon: Annotated[float, SHARE] = 1e-7
    weight_decay: Annotated[float, number(0, 10)] = 0.0
    clip_norm: Annotated[float | None, number(0, 1e6, open_ends=True)] = None
    layer_decay: Annotated[float, number(0.01, 1)] = 1.0
    schedule: Annotated[str, choice(*SCHEDULES)] = "cosine"
    decay_share: Annotated[float | None, SHARE] = None
    ema_momentum: Annotated[float | None, SHARE] = None

    def _conflicts(self) -> Iterator[Conflict]:
        if self.name == "adam" and self.weight_decay:
            expected = "0 with Adam, whose decay no rule scales"
            edit = 'Set name="adamw", which is Adam with decoupled weight decay.'
            yield Conflict("weight_decay", expected, edit)
        if self.decay_share is not None and self.schedule != "constant":
            expected = f"nothing with schedule={self.schedule!r}, which falls all the time"
            edit = 'Leave it out, or set schedule="constant".'
            yield Conflict("decay_share", expected, edit)
