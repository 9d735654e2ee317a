# SPDX-License-Identifier: Apache-2.0
"""Linear regression under MultiWorkerMirroredStrategy, by a loop of its own."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
role, index = resolver.task_type, resolver.task_id
size = strategy.num_replicas_in_sync
print(f"{role} {index}: {size} in step")
assert size == sum(len(resolver.cluster_spec().job_tasks(job)) for job in ("chief", "worker"))

rank = index if role == "chief" else index + 1


@tf.function
def numbered() -> tf.Tensor:
    """Add up the ranks."""
    ranks = strategy.run(lambda: tf.constant(float(rank)))
    return strategy.reduce("SUM", ranks, axis=None)


total = float(numbered())
assert total == sum(range(size)), total
print(f"{role} {index}: the sum of all ranks is {total:.0f}")

wanted = tf.constant([[2.0], [-3.0]])
inputs = tf.random.stateless_normal((64, 2), seed=(rank, 1))
targets = inputs @ wanted
with strategy.scope():
    weights = tf.Variable(tf.zeros((2, 1)), synchronization=tf.VariableSynchronization.AUTO)


@tf.function
def step() -> tf.Tensor:
    """Take one step with the gradients of all."""

    def one() -> tf.Tensor:
        error = inputs @ weights - targets
        gradient = tf.matmul(inputs, error, transpose_a=True) / (64.0 * size)
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, gradient)
        weights.assign_sub(0.1 * summed, read_value=False)
        return tf.reduce_mean(error**2)

    return strategy.reduce("MEAN", strategy.run(one), axis=None)


losses = [float(step()) for _ in range(100)]
assert losses[-1] < losses[0] / 100, losses
print(f"{role} {index}: loss {losses[0]:.4f} -> {losses[-1]:.6f}")
