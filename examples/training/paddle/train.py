# SPDX-License-Identifier: Apache-2.0
"""Linear regression in Paddle, each rank with data of its own; an all-reduce adds up."""

import paddle
import paddle.distributed as dist

paddle.device.set_device("cpu")
dist.init_parallel_env()
rank, size = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of {size}")

total = paddle.to_tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == sum(range(size)), total
print(f"rank {rank}: the sum of all ranks is {total.item():.0f}")

paddle.seed(rank)
wanted = paddle.to_tensor([[2.0], [-3.0]])
inputs = paddle.randn((64, 2))
weights, losses = paddle.zeros((2, 1)), []
for _ in range(100):
    error = inputs @ (weights - wanted)
    gradient = inputs.T @ error / 64.0
    dist.all_reduce(gradient)
    weights = weights - 0.1 * gradient / size
    losses.append((error**2).mean().item())
assert losses[-1] < losses[0] / 100, losses
assert paddle.allclose(weights, wanted, atol=0.05), weights
print(f"rank {rank}: loss {losses[0]:.4f} -> {losses[-1]:.6f}")
