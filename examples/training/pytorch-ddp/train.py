# SPDX-License-Identifier: Apache-2.0
"""Linear regression under DistributedDataParallel, each rank with data of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of {size}")

total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == sum(range(size)), total
print(f"rank {rank}: the sum of all ranks is {total.item():.0f}")

torch.manual_seed(rank)
wanted = torch.tensor([[2.0], [-3.0]])
inputs = torch.randn(64, 2)
targets = inputs @ wanted + 1.0

model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"rank {rank}: loss {losses[0]:.4f} -> {losses[-1]:.6f}")
assert losses[-1] < losses[0] / 100

found = [torch.empty_like(wanted) for _ in range(size)]
dist.all_gather(found, model.module.weight.detach().T.contiguous())
assert all(torch.equal(found[0], other) for other in found), found
assert torch.allclose(found[0], wanted, atol=0.05), found[0]
print(f"rank {rank}: all {size} ranks have the same right weights")
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
