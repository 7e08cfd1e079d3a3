"""MirroredStrategy: one worker trains on all its devices, and needs no other task.

    tfcluster launch --workers 1 examples/mirrored.py -- --epochs 12

The program is plain TensorFlow with Keras 3, and runs unchanged without TFCluster.
"""

import argparse
import os

import digits
import tensorflow as tf


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--log_path", default=os.environ.get("TFCLUSTER_OUTPUT_DIR", "log"))
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    data, (x, y) = digits.load()
    dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(digits.TRAIN).batch(64)

    strategy = tf.distribute.MirroredStrategy()
    print(f"training on {strategy.num_replicas_in_sync} devices", flush=True)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((digits.PIXELS,)),
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dense(digits.CLASSES),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.Adam(5e-3),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    callbacks = [
        tf.keras.callbacks.TensorBoard(arguments.log_path),
        tf.keras.callbacks.ModelCheckpoint(
            os.path.join(arguments.log_path, "model.weights.h5"), save_weights_only=True
        ),
    ]
    model.fit(dataset, epochs=arguments.epochs, callbacks=callbacks, verbose=2)

    accuracy = (model(x).numpy().argmax(axis=1) == y).mean()
    print(f"held-out accuracy: {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
