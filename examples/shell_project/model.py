"""The data and the model, in a module of their own."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAIN = 1500


def load():
    """Return real scans of handwritten digits: 1500 to train on, 297 held out, each as (x, y)."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype("float32").reshape(-1, 8, 8, 1), y.astype("int64")
    order = np.random.RandomState(0).permutation(len(x))
    x, y = x[order], y[order]
    return (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])


def build():
    """Return a small convolutional network."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(3e-3),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model
