# SPDX-License-Identifier: Apache-2.0
"""Linear regression with Paddle's parameter servers: each holds a part of the weights.

Paddle's launcher starts a server and a trainer in each pod and tells them of all others. They
meet at the first server; a trainer pulls the weights and pushes its gradients by Paddle's RPC.
"""

import os
import time

import paddle
from paddle.distributed import rpc

STEPS = 100
paddle.device.set_device("cpu")
servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
trainers = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
own = f"{os.environ['POD_IP']}:{os.environ['PADDLE_PORT']}"
part, pushed = [0.0], []


def pull():
    """Return this server's part of the weights."""
    return part[0]


def push(gradient):
    """Move this server's part of the weights."""
    pushed.append(gradient)
    part[0] -= 0.1 * gradient / len(trainers)


def train(rank):
    """Return the first loss and the last."""
    paddle.seed(rank)
    wanted = paddle.arange(1.0, len(servers) + 1).unsqueeze(1)
    inputs, losses = paddle.randn((64, len(servers))), []
    for _ in range(STEPS):
        weights = paddle.to_tensor([[rpc.rpc_sync(server, pull)] for server in servers])
        error = inputs @ (weights - wanted)
        losses.append((error**2).mean().item())
        gradients = (inputs.T @ error / 64.0).flatten().tolist()
        for server, gradient in zip(servers, gradients, strict=True):
            rpc.rpc_sync(server, push, (gradient,))
    return losses[0], losses[-1]


everyone = servers + trainers
rpc.init_rpc(own, everyone.index(own), len(everyone), servers[0])
if own in trainers:
    rank = trainers.index(own)
    first, last = train(rank)
    assert last < first / 100, (first, last)
    print(f"trainer {rank} of {len(trainers)}: loss {first:.4f} -> {last:.6f}", flush=True)
while own in servers and len(pushed) < STEPS * len(trainers):
    time.sleep(0.1)  # who calls shutdown answers nobody any more
rpc.shutdown()
if own in servers:
    print(f"server {servers.index(own)} of {len(servers)}: {len(pushed)} gradients", flush=True)
