"""Move arrays to and between replicas, the accelerator cores that share a batch.

Each replica has an equal, contiguous part of the batch. The JAX mesh is None for a single device.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

AXIS = "batch"  # mesh axis, as named by keras.distribution.DataParallel
# Arrays up to this size, a quarter of a megabyte, are concatenated to synchronize less often.
SMALL = 2**16


def mesh() -> Any:
    import keras

    distribution = keras.distribution.distribution()
    return distribution and distribution.device_mesh.backend_mesh


def platform(mesh: Any) -> str:
    device = mesh.devices.flat[0] if mesh else jax.devices()[0]
    return str(device.platform)


def _split(mesh: Any, axis: int | None) -> NamedSharding:
    """Return a sharding that splits `axis`, or one that copies the array if `axis` is None."""
    axes = [] if axis is None else [*[None] * axis, AXIS]
    return NamedSharding(mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]


def put(mesh: Any, *arrays: np.ndarray, axis: int | None = 0) -> tuple[Any, ...]:
    """Move arrays to the devices, split along `axis` over the replicas. If `axis` is None, each
    replica gets a copy. A single CPU device reads the arrays in place.
    """
    if mesh is None:
        return arrays if platform(mesh) == "cpu" else tuple(map(jax.device_put, arrays))
    return tuple(placed(array, _split(mesh, axis)) for array in arrays)


def put_part(mesh: Any, array: np.ndarray, batch: int, *, axis: int) -> tuple[Any, ...]:
    """Like `put`, but each process only passes its own `part` of the array."""
    if jax.process_count() == 1:
        return put(mesh, array, axis=axis)
    shape = (*array.shape[:axis], batch, *array.shape[axis + 1 :])
    made: Any = jax.make_array_from_process_local_data
    return (made(_split(mesh, axis), array, shape),)


def part(mesh: Any, batch: int) -> slice:
    """Return the slice of the batch that this process's devices compute."""
    if mesh is None or jax.process_count() == 1:
        return slice(0, batch)
    mine = [n for n, device in enumerate(mesh.devices.flat) if device in jax.local_devices()]
    return slice(mine[0] * batch // mesh.size, (mine[-1] + 1) * batch // mesh.size)


def everywhere(mesh: Any) -> Any:
    """Return the sharding of an array that each process reads in full. If None, XLA chooses."""
    return None if jax.process_count() == 1 else _split(mesh, None)


def placed(array: np.ndarray, where: Any) -> Any:
    """Move an array to the devices of a sharding. Every process must have the whole array."""
    if jax.process_count() == 1:
        return jax.device_put(array, where)
    return jax.make_array_from_callback(array.shape, where, array.__getitem__)


def hold(mesh: Any, images: Any, rows: np.ndarray | None) -> Any:
    """Split images (n, …) over the devices. `rows` selects images by their indices."""
    number, count = len(images) if rows is None else len(rows), mesh.size if mesh else 1
    share = -(-number // count)

    def part_of(index: tuple[slice, ...]) -> np.ndarray:
        start = index[0].start or 0
        mine = slice(start, max(min(start + share, number), start))
        part = np.zeros((share, *images.shape[1:]), images.dtype)
        part[: mine.stop - mine.start] = images[mine if rows is None else rows[mine]]
        return part

    where = _split(mesh, 0) if mesh else SingleDeviceSharding(jax.devices()[0])
    shape: Any = (share * count, *images.shape[1:])
    return jax.make_array_from_callback(shape, where, part_of)  # type: ignore[arg-type]


def gathered(held: Any, rows: Any) -> Any:
    """Return this replica's rows, (batch / replicas, …), collected from all replicas.

    Each replica sends the rows that it holds to the replicas that use them, with zeros for all
    other rows.
    """
    mine = rows - jax.lax.axis_index(AXIS) * len(held)
    here = jnp.expand_dims((mine >= 0) & (mine < len(held)), tuple(range(1, held.ndim)))
    found = jnp.where(here, jnp.take(held, mine, axis=0, mode="clip"), 0).astype(held.dtype)
    count: Any = jax.lax.axis_size(AXIS)
    parts = found.reshape(count, len(rows) // count, *found.shape[1:])
    sent: Any = jax.lax.all_to_all(parts, AXIS, 0, 0)  # type: ignore[no-untyped-call]
    return sent.sum(0, dtype=held.dtype)


def added_up(sums: Any, platform: str) -> Any:
    """Return the sums of arrays over all replicas, which are identical on every replica.

    On a CPU, the replicas synchronize once per array, which takes a third of a millisecond on 2
    cores. Small arrays of the same dtype are therefore concatenated, without changing the result.
    """
    if platform != "cpu":
        return jax.lax.psum(sums, AXIS)  # type: ignore[no-untyped-call]
    leaves, structure = jax.tree.flatten(sums)
    joined: dict[str, dict[int, Any]] = {}
    for place, leaf in enumerate(leaves):
        name = leaf.dtype.name if leaf.size <= SMALL else f"large {place}"
        joined.setdefault(name, {})[place] = leaf
    vectors, restore = zip(*map(ravel_pytree, joined.values()), strict=True)
    added = jax.lax.psum(vectors, AXIS)  # type: ignore[no-untyped-call]
    arrays: dict[int, Any] = {}
    for vector, into_arrays in zip(added, restore, strict=True):
        arrays |= into_arrays(vector)
    return jax.tree.unflatten(structure, [arrays[place] for place in range(len(leaves))])
