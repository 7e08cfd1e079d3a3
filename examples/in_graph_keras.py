"""In-Graph with Keras: `model.fit` on ParameterServerStrategy.

    python examples/in_graph_keras.py --epochs 5

The model's weights live on the parameter servers, its steps run on the workers, and its callbacks
run in this program.
"""

import argparse
import os

# Keras 3 cannot train on this strategy; tf_keras, which is Keras 2, can.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
# When a cluster ends, TensorFlow would log many errors in every connected program; this hides them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import digits
import tensorflow as tf

from tfcluster_magic import Cluster, ClusterManager

STEPS_PER_EPOCH = 100


def train(cluster, epochs, log_path):
    """Train on a connected cluster; return the share of held-out digits that are read correctly."""
    data, (held_out_x, held_out_y) = digits.load()
    dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(digits.TRAIN).repeat().batch(64)
    strategy = cluster.strategy()
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
            steps_per_execution=10,
        )
    model.fit(
        dataset,
        epochs=epochs,
        steps_per_epoch=STEPS_PER_EPOCH,
        callbacks=[
            tf.keras.callbacks.TensorBoard(log_path),
            tf.keras.callbacks.ModelCheckpoint(
                os.path.join(log_path, "ckpt-{epoch}"), save_weights_only=True
            ),
        ],
        verbose=2,
    )
    return (model(held_out_x).numpy().argmax(axis=1) == held_out_y).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--log_path", help="folder for checkpoints and summaries")
    arguments = parser.parse_args()

    run = ClusterManager().launch(mode="in-graph", name="in-graph-keras", ps=1, workers=2)
    cluster = Cluster(run.metadata.name).wait_ready()
    try:
        log_path = arguments.log_path or cluster.status.paths["output"]
        print(f"held-out accuracy: {train(cluster, arguments.epochs, log_path):.4f}")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
