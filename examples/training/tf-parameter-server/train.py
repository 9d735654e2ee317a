# SPDX-License-Identifier: Apache-2.0
"""Linear regression under ParameterServerStrategy; the evaluator reads the chief's checkpoints."""

import json
import os
import time
from pathlib import Path

import tensorflow as tf

FOLDER, STEPS = Path("/checkpoints"), 200
LAST, DONE = FOLDER / "last.index", FOLDER / "evaluated"
WANTED = tf.constant([[2.0], [-3.0]])
known = json.loads(os.environ["TF_CONFIG"])
task = known["task"]
print(f"{task['type']} {task['index']}")
# The chief waits for a server of each task that is named; the evaluator has none.
spec = tf.train.ClusterSpec({k: v for k, v in known["cluster"].items() if k != "evaluator"})


def serve() -> None:
    """Be a server of the cluster, until the job ends."""
    tf.distribute.Server(spec, task["type"], task["index"], protocol="grpc").join()


def coordinate() -> None:
    """Hand steps to the workers; the variables are on the parameter servers."""
    DONE.unlink(missing_ok=True)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, "", task["type"], task["index"], rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((2, 1)))
    assert "/job:ps" in weights.device, weights.device

    @tf.function
    def step() -> tf.Tensor:
        inputs = tf.random.normal((64, 2))
        error = inputs @ (weights - WANTED)
        weights.assign_sub(0.05 * tf.matmul(inputs, error, transpose_a=True) / 64.0)
        return tf.reduce_mean(error**2)

    steps = [coordinator.schedule(step) for _ in range(STEPS)]
    coordinator.join()
    losses = [float(done.fetch()) for done in steps]
    print(f"loss {max(losses):.4f} -> {losses[-1]:.6f}")
    assert losses[-1] < max(losses) / 100, losses
    while not DONE.exists():
        tf.train.Checkpoint(weights=weights).write(f"{FOLDER}/last")
        time.sleep(1)


def evaluate() -> None:
    """Wait for a checkpoint, look at what it is worth, and say that it was seen."""
    LAST.unlink(missing_ok=True)
    while not LAST.exists():
        time.sleep(0.2)
    weights = tf.Variable(tf.zeros((2, 1)))
    tf.train.Checkpoint(weights=weights).read(f"{FOLDER}/last").expect_partial()
    loss = float(tf.reduce_mean((tf.random.normal((64, 2)) @ (weights - WANTED)) ** 2))
    print(f"evaluated: loss {loss:.6f}")
    assert loss < 0.01, loss
    DONE.touch()


{"chief": coordinate, "evaluator": evaluate}.get(task["type"], serve)()
