# SPDX-License-Identifier: Apache-2.0
"""Linear regression by jax.distributed: each process has data of its own, a psum adds up."""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

address = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
rank, size = int(os.environ["PROCESS_ID"]), int(os.environ["NUM_PROCESSES"])
print(f"process {rank} of {size}, the coordinator is {address}")
jax.distributed.initialize(address, size, rank)
assert jax.process_count() == size
assert jax.device_count() == size * jax.local_device_count()

mesh = jax.make_mesh((jax.device_count(),), ("data",))
shard = jax.sharding.NamedSharding(mesh, P("data"))
wanted = np.array([2.0, -3.0])
inputs = np.random.default_rng(rank).normal(size=(64, 2))


def spread(rows: np.ndarray) -> jax.Array:
    """Make one array of what each process has."""
    return jax.make_array_from_process_local_data(shard, rows)


@partial(jax.shard_map, mesh=mesh, in_specs=P("data"), out_specs=P())
def summed(values: jax.Array) -> jax.Array:
    return jax.lax.psum(values.sum(), "data")


total = summed(spread(np.full(jax.local_device_count(), float(rank))))
assert total == sum(range(size)) * jax.local_device_count(), total
print(f"process {rank}: the sum of all processes is {total:.0f}")


@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()))
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    error = x @ weights - y
    mean = partial(jax.lax.pmean, axis_name="data")
    return weights - 0.1 * mean(x.T @ error / len(x)), mean((error**2).mean())


x, y = spread(inputs), spread(inputs @ wanted)
weights, losses = jnp.zeros(2), []
for _ in range(100):
    weights, loss = step(weights, x, y)
    losses.append(float(loss))
assert losses[-1] < losses[0] / 100, losses
assert jnp.allclose(weights, wanted, atol=0.05), weights
print(f"process {rank}: loss {losses[0]:.4f} -> {losses[-1]:.6f}")
jax.distributed.shutdown()
