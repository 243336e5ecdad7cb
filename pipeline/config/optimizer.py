"""The optimizer of a run, and the batch for which its numbers were tuned."""

from dataclasses import dataclass

from pipeline.config.field_checks import expect, one_of, truth, whole, within

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("cosine", "one_cycle", "constant")
# Far above any need, and far below what ends a run for lack of memory.
MOST_BATCH = 2**20


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer and the batch for which its numbers were tuned.

    `pipeline.train.learning_rate` scales them to another batch.

    Attributes:
        name: "sgd", "adam" or "adamw".
        base_rate: learning rate per optimizer step that worked at `base_batch`.
        base_batch: images per step, over all replicas, when it worked.
        momentum: of SGD, which is Nesterov's.
        beta_1, beta_2, epsilon: of Adam and AdamW.
        weight_decay: of SGD and AdamW, decoupled: each step takes learning rate x decay off the
            weights (as Keras does it). Adam has none.
        decay_biases: take it off biases and normalization's scale and offset, too. Papers leave
            them out (Goyal et al. 2017, 1706.02677; He et al. 2018, 1812.01187).
        clip_norm: a mean gradient of a batch with a larger norm, over all weights together, is
            scaled down to it; 1 is usual. None: never.
        layer_decay: factor of the learning rate from one twelfth of the layers to the next, away
            from the head (`pipeline.models.backbones.learning_rate_factors`); 0.65 to 0.9 is usual
            for a pretrained network. 1: none.
        schedule: how the learning rate goes on after the warm-up: "cosine" falls along a half
            cosine; "one_cycle" does so after a warm-up along another one; "constant" stays, and
            falls at the end (`pipeline.train.learning_rate.schedule`).
        decay_share: of "constant": the share of all steps in which it falls to 0; None: 0.2.
        ema_momentum: of an average of the weights, and of BatchNorm's statistics, that is used for
            evaluation and in the artifact; None: no average. In step t it is at most (1 + t) / (10
            + t), so that the random weights of the start soon disappear.
    """

    name: str
    base_rate: float
    base_batch: int
    momentum: float = 0.9
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0
    decay_biases: bool = False
    clip_norm: float | None = None
    layer_decay: float = 1.0
    schedule: str = "cosine"
    decay_share: float | None = None
    ema_momentum: float | None = None

    def __post_init__(self) -> None:
        one_of("optimizer.name", self.name, OPTIMIZERS)
        within("optimizer.base_rate", self.base_rate, 0, 100, open_ends=True)
        whole("optimizer.base_batch", self.base_batch, 1, MOST_BATCH)
        for name in ("momentum", "beta_1", "beta_2"):
            within(f"optimizer.{name}", getattr(self, name), 0, 0.999999)
        within("optimizer.epsilon", self.epsilon, 0, 1, open_ends=True)
        within("optimizer.weight_decay", self.weight_decay, 0, 10)
        truth("optimizer.decay_biases", self.decay_biases)
        expect(
            self.name != "adam" or self.weight_decay == 0,
            "optimizer.weight_decay",
            self.weight_decay,
            "0 with Adam, whose decay no rule scales",
            'Set name="adamw", which is Adam with decoupled weight decay.',
        )
        if self.clip_norm is not None:
            within("optimizer.clip_norm", self.clip_norm, 0, 1e6, open_ends=True)
        within("optimizer.layer_decay", self.layer_decay, 0.01, 1)
        one_of("optimizer.schedule", self.schedule, SCHEDULES)
        if self.decay_share is not None:
            within("optimizer.decay_share", self.decay_share, 0, 1, open_ends=True)
            expect(
                self.schedule == "constant",
                "optimizer.decay_share",
                self.decay_share,
                f"nothing with schedule={self.schedule!r}, which falls all the time",
                'Leave it out, or set schedule="constant".',
            )
        if self.ema_momentum is not None:
            within("optimizer.ema_momentum", self.ema_momentum, 0, 1, open_ends=True)
