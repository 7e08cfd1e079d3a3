"""Keras 3 on one worker: an image classifier on random data, with progress bars."""

import keras
import numpy as np

random = np.random.default_rng(0)
images, labels = random.random((96, 8, 8, 1)), random.integers(0, 10, 96)
model = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(images, labels, epochs=3, batch_size=16)
model.save("classifier.keras")
