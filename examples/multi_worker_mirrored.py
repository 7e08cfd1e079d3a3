"""MultiWorkerMirroredStrategy with Keras: every worker holds the whole model, and they average
their gradients.

    tfcluster launch --workers 2 examples/multi_worker_mirrored.py -- --epochs 8

There are no parameter servers. When a worker is lost, all workers start again together, and
BackupAndRestore continues the training at the epoch that it had reached. The program is plain
TensorFlow: it reads TF_CONFIG.
"""

import argparse
import json
import os

# Keras 3 cannot train on this strategy; tf_keras, which is Keras 2, can.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import digits
import tensorflow as tf

STEPS_PER_EPOCH = 30


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--log_path", default=os.environ.get("TFCLUSTER_OUTPUT_DIR", "log"))
    return parser.parse_args()


def make_model():
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
    return model


def main():
    arguments = parse_arguments()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    is_chief = task["type"] == "chief" or task["index"] == 0

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
    data, (x, y) = digits.load()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = (
        tf.data.Dataset.from_tensor_slices(data)
        .shuffle(digits.TRAIN)
        .repeat()
        .batch(128)
        .with_options(options)
    )

    with strategy.scope():
        model = make_model()
    # All workers share one folder, because they must continue at the same epoch.
    callbacks = [tf.keras.callbacks.BackupAndRestore(os.path.join(arguments.log_path, "backup"))]
    if is_chief:
        callbacks.append(tf.keras.callbacks.TensorBoard(arguments.log_path))
    model.fit(
        dataset,
        epochs=arguments.epochs,
        steps_per_epoch=STEPS_PER_EPOCH,
        callbacks=callbacks,
        verbose=2 if is_chief else 0,
    )

    if is_chief:
        accuracy = (model(x).numpy().argmax(axis=1) == y).mean()
        print(f"held-out accuracy: {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
