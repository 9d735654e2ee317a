# SPDX-License-Identifier: Apache-2.0
"""Keras' fit under a strategy that reads TF_CONFIG: no host, role or rank is named here."""

import numpy as np
import tensorflow as tf

with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")

inputs = np.random.default_rng(0).normal(size=(1024, 2)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((inputs, inputs @ [[2.0], [-3.0]])).batch(64)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
losses = model.fit(data.with_options(options), epochs=5, verbose=2).history["loss"]
assert losses[-1] < losses[0] / 100, losses
assert np.allclose(model.get_weights()[0], [[2.0], [-3.0]], atol=0.05), model.get_weights()
print(f"loss {losses[0]:.4f} -> {losses[-1]:.6f}")
