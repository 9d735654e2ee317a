# SPDX-License-Identifier: Apache-2.0
"""Go on from the last checkpoint; the first time, one rank dies half-way and takes all along."""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist

STEPS, FOLDER = 100, Path("/checkpoints")

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
kept = FOLDER / "last.pt"
first = not kept.exists()
state = {"step": 0, "weight": torch.zeros(2, 1), "loss": 0.0} if first else torch.load(kept)
dist.barrier()
step, weight, loss = state["step"], state["weight"], state["loss"]
print(f"rank {rank} of {size}: starts at step {step}, loss was {state['loss']:.6f}")

wanted = torch.tensor([[2.0], [-3.0]])
generator = torch.Generator().manual_seed(rank)
inputs = torch.randn(64, 2, generator=generator)
while step < STEPS:
    error = inputs @ (weight - wanted)
    summed = torch.cat([inputs.T @ error / len(inputs), (error**2).mean().reshape(1, 1)])
    dist.all_reduce(summed)
    loss = summed[2].item() / size
    if not first and step == state["step"]:
        print(f"rank {rank}: goes on with loss {loss:.6f}")
        assert loss < state["loss"]
    weight = weight - 0.1 * summed[:2] / size
    step += 1
    if rank == 0:
        torch.save({"step": step, "weight": weight, "loss": loss}, FOLDER / "new.pt")
        (FOLDER / "new.pt").replace(kept)
    dist.barrier()
    if first and rank == size - 1 and step == STEPS // 2:
        print(f"rank {rank}: dies at step {step}, loss {loss:.6f}")
        os.kill(os.getpid(), signal.SIGKILL)
assert torch.allclose(weight, wanted, atol=0.05), weight
print(f"rank {rank} of {size}: trained to step {step}, loss {loss:.6f}")
if rank == 0:
    kept.unlink()
