"""Train the model of model.py on all workers together (MultiWorkerMirroredStrategy)."""

import argparse
import os

import model
import tensorflow as tf


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--log_path", default=os.environ.get("TFCLUSTER_OUTPUT_DIR", "log"))
    arguments = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_chief = strategy.cluster_resolver.task_id == 0
    data, (x, y) = model.load()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = (
        tf.data.Dataset.from_tensor_slices(data)
        .shuffle(model.TRAIN)
        .repeat()
        .batch(128)
        .with_options(options)
    )

    with strategy.scope():
        network = model.build()
    callbacks = [tf.keras.callbacks.BackupAndRestore(os.path.join(arguments.log_path, "backup"))]
    if is_chief:
        callbacks.append(tf.keras.callbacks.TensorBoard(arguments.log_path))
    network.fit(
        dataset,
        epochs=arguments.epochs,
        steps_per_epoch=20,
        callbacks=callbacks,
        verbose=2 * is_chief,
    )
    if is_chief:
        accuracy = (network(x).numpy().argmax(axis=1) == y).mean()
        print(f"held-out accuracy: {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
