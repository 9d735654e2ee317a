# SPDX-License-Identifier: Apache-2.0
"""Train on as many workers as there are: when one is lost or joins, all go on together."""

import os
import time

import torch
import torch.distributed as dist

STEPS, PAUSE = int(os.environ.get("STEPS", "60")), float(os.environ.get("PAUSE", "0.2"))

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"rank {rank} of {size}, restart {restarts}")

# Whoever was here before has got furthest, and tells the others.
path = "/tmp/checkpoint.pt"
state = torch.load(path) if os.path.exists(path) else {"step": 0, "weight": torch.zeros(2, 1)}
states = [None] * size
dist.all_gather_object(states, state)
state = max(states, key=lambda known: known["step"])
step, weight = state["step"], state["weight"].clone()
print(f"rank {rank}: goes on at step {step}")

wanted = torch.tensor([[2.0], [-3.0]])
generator = torch.Generator().manual_seed(rank)
while step < STEPS:
    inputs = torch.randn(64, 2, generator=generator)
    error = inputs @ (weight - wanted)
    gradient = inputs.T @ error / len(inputs)
    dist.all_reduce(gradient)
    weight -= 0.1 * gradient / size
    step += 1
    torch.save({"step": step, "weight": weight}, f"{path}.new")
    os.replace(f"{path}.new", path)
    if step % 10 == 0:
        print(f"rank {rank} of {size}: step {step}, loss {(error**2).mean():.6f}")
    time.sleep(PAUSE)
assert torch.allclose(weight, wanted, atol=0.1), weight
print(f"rank {rank} of {size}: trained to step {step}")
dist.destroy_process_group()
