"""What a step takes of a core's memory, by XLA's own plan of its buffers.

A step takes a fixed part (weights, gradients, what the optimizer keeps) and a part for each image.
Two compiled batches give both; `fits` then says how many images a core has room for. For a TPU the
batch itself is compiled (`tpu_compiler`). A GPU's compiler wants to see the GPU: XLA's plan for one
core of a CPU stands in, and is an estimate.
"""

from dataclasses import dataclass, replace

from pipeline.config import Config
from pipeline.plan import lowered_step

# What is compiled: the share of one of four GPUs, and that of one alone; at least one group of
# BatchNorm, and two.
PARTS = ((4, 1), (1, 2))


@dataclass(frozen=True)
class MemoryLaw:
    """Bytes of a core: `fixed` + `image` x its images."""

    fixed: float
    image: float

    @classmethod
    def through(cls, first: tuple[int, float], second: tuple[int, float]) -> "MemoryLaw":
        """Return the law of two compiled steps.

        Args:
            first, second: images of a core, and bytes.

        >>> MemoryLaw.through((8, 180.0), (16, 260.0))
        MemoryLaw(fixed=100.0, image=10.0)
        """
        image = (second[1] - first[1]) / (second[0] - first[0])
        return cls(max(first[1] - image * first[0], 0.0), image)

    def bytes(self, images: int) -> float:
        """Return the bytes of a step with so many images a core."""
        return self.fixed + self.image * images

    def fits(self, room: float) -> int:
        """Return the most images a core that fit into so many bytes; 0: not even one.

        >>> MemoryLaw(100.0, 10.0).fits(199)
        9
        """
        return max(int((room - self.fixed) / self.image), 0)


def on_this_cpu(config: Config, policy: str) -> MemoryLaw:
    """Return the law by two steps that are compiled for one core of this CPU; nothing is computed.

    Args:
        policy: of Keras, which is the precision that they train in.

    Raises:
        ConfigError: if the model does not take images of this size.
    """
    group = min(config.batchnorm_batch or config.optimizer.base_batch, config.batch)
    shares = [max(config.batch // part // group, times) * group for part, times in PARTS]
    first, second = ((share, compiled_bytes(config, share, group, policy)) for share in shares)
    return MemoryLaw.through(first, second)


def compiled_bytes(config: Config, images: int, group: int, policy: str) -> float:
    """Return the bytes of a step of so many images on one core of this CPU.

    Args:
        images: a multiple of `group`, which BatchNorm normalizes together.
    """
    small = replace(
        config, batch=images, batchnorm_batch=group, micro_batch=None, steps_per_call=1,
        optimizer=replace(config.optimizer, base_batch=images),
    )  # fmt: skip
    return of_step(small, 1, policy)


def of_step(config: Config, count: int, policy: str) -> float:
    """Return the bytes that a step takes of each of so many devices of this machine's CPU."""
    import jax

    found = lowered_step.of(config, jax.devices("cpu")[:count], policy).compile().memory_analysis()
    return float(
        found.argument_size_in_bytes
        + found.temp_size_in_bytes
        + found.output_size_in_bytes
        - found.alias_size_in_bytes
    )
