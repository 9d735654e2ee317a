# SPDX-License-Identifier: Apache-2.0
"""Gradient descent with mpi4py: each rank has data of its own, an all-reduce adds up."""

import socket

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
print(f"rank {rank} of {size} on {socket.gethostname()}", flush=True)

total = world.allreduce(rank)
assert total == sum(range(size)), total
hosts = set(world.allgather(socket.gethostname()))
print(f"rank {rank}: the sum of all ranks is {total}, hosts are {sorted(hosts)}", flush=True)
assert len(hosts) == size

generator = np.random.default_rng(rank)
wanted = np.array([2.0, -3.0])
inputs = generator.normal(size=(64, 2))
weights, losses = np.zeros(2), []
for _ in range(100):
    error = inputs @ (weights - wanted)
    gradient = np.empty(2)
    world.Allreduce(inputs.T @ error / len(inputs), gradient)
    weights -= 0.1 * gradient / size
    losses.append(world.allreduce((error**2).mean()) / size)
assert losses[-1] < losses[0] / 100, losses
assert np.allclose(weights, wanted, atol=0.05), weights
print(f"rank {rank}: loss {losses[0]:.4f} -> {losses[-1]:.6f}", flush=True)
