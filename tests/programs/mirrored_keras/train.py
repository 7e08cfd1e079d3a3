"""MultiWorkerMirroredStrategy with Keras, as in the tutorial: only the chief saves."""

import json
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = json.loads(os.environ["TF_CONFIG"])["task"]
random = np.random.RandomState(1)
x = random.rand(128, 4).astype("float32")
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(32).with_options(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
chief = task["type"] == "chief" or (task["type"] == "worker" and task["index"] == 0)
model.fit(data.repeat(), epochs=3, steps_per_epoch=4, verbose=1 if chief else 0)
folder = "model" if chief else f"/tmp/model-{os.getpid()}"
model.save_weights(os.path.join(folder, "weights"))
print("saved")
