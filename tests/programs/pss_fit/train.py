"""ParameterServerStrategy with Keras' own training loop."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf


def serve(resolver):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()


def train(resolver):
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    x = np.random.RandomState(0).rand(256, 8).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).shuffle(256).repeat().batch(32)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(data, epochs=3, steps_per_epoch=10, verbose=2)
    print("loss went down")


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "worker" or resolver.task_type == "ps":
        serve(resolver)
    else:
        train(resolver)


if __name__ == "__main__":
    main()
