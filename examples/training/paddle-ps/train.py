# SPDX-License-Identifier: Apache-2.0
"""Linear regression in Paddle: the weights are on a server, two trainers send it gradients."""

import numpy as np
import paddle
from paddle.distributed import fleet

paddle.enable_static()
fleet.init(is_collective=False)
inputs = paddle.static.data("inputs", [None, 2])
targets = paddle.static.data("targets", [None, 1])
loss = paddle.mean((paddle.static.nn.fc(inputs, 1, bias_attr=False) - targets) ** 2)
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
fleet.distributed_optimizer(paddle.optimizer.SGD(0.05), strategy).minimize(loss)


def serve() -> None:
    """Hold the weights until the trainers are done."""
    print("server")
    fleet.init_server()
    fleet.run_server()


def train() -> None:
    """Send gradients of data of its own, and see the loss fall."""
    rank, size = fleet.worker_index(), fleet.worker_num()
    print(f"trainer {rank} of {size}, {fleet.server_num()} server")
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    x = np.random.default_rng(rank).normal(size=(64, 2)).astype("float32")
    fed = {"inputs": x, "targets": x @ np.array([[2.0], [-3.0]], dtype="float32")}
    program = paddle.static.default_main_program()
    losses = [float(executor.run(program, feed=fed, fetch_list=[loss])[0]) for _ in range(500)]
    assert losses[-1] < losses[0] / 100, losses
    print(f"trainer {rank}: loss {losses[0]:.4f} -> {losses[-1]:.6f}")
    fleet.stop_worker()


serve() if fleet.is_server() else train()
