"""In-Graph with ParameterServerStrategy: a custom training loop, scheduled onto the workers.

    python examples/in_graph_pss.py --steps 600

Variables live on the parameter servers. The client schedules steps, and whichever worker is free
runs the next one. If a worker is lost, only its step runs again. The program works with any version
of Keras, because it does not use Keras.
"""

import argparse
import os

# When a cluster ends, TensorFlow would log many errors in every connected program; this hides them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import digits
import numpy as np
import tensorflow as tf

from tfcluster_magic import Cluster, ClusterManager


def train(cluster, steps, log_path):
    """Train on a connected cluster; return the share of held-out digits that are read correctly."""
    data, (held_out_x, held_out_y) = digits.load()
    strategy = cluster.strategy()
    coordinator = cluster.coordinator()

    with strategy.scope():
        initial = tf.initializers.GlorotUniform(seed=1)
        w1 = tf.Variable(initial([digits.PIXELS, 128]))
        b1 = tf.Variable(tf.zeros([128]))
        w2 = tf.Variable(initial([128, digits.CLASSES]))
        b2 = tf.Variable(tf.zeros([digits.CLASSES]))
        step = tf.Variable(0, dtype=tf.int64)
    weights = [w1, b1, w2, b2]

    def network(x):
        return tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2

    def make_dataset():
        return tf.data.Dataset.from_tensor_slices(data).shuffle(digits.TRAIN).repeat().batch(64)

    @tf.function
    def train_step(iterator):
        x, y = next(iterator)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=network(x))
            loss = tf.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.5 * gradient)
        step.assign_add(1)
        return loss

    batches = iter(coordinator.create_per_worker_dataset(make_dataset))
    checkpoint = tf.train.Checkpoint(w1=w1, b1=b1, w2=w2, b2=b2, step=step)
    writer = tf.summary.create_file_writer(log_path)
    done = 0
    while done < steps:
        some = min(100, steps - done)
        losses = [coordinator.schedule(train_step, args=(batches,)) for _ in range(some)]
        coordinator.join()
        done += some
        loss = np.mean([value.fetch() for value in losses])
        with writer.as_default(step=done):
            tf.summary.scalar("loss", loss)
        writer.flush()
        print(f"step {step.numpy()} loss {loss:.4f}", flush=True)
    checkpoint.save(os.path.join(log_path, "ckpt"))
    return np.mean(network(held_out_x).numpy().argmax(axis=1) == held_out_y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--log_path", help="folder for checkpoints and summaries")
    arguments = parser.parse_args()

    run = ClusterManager().launch(mode="in-graph", name="in-graph-pss", ps=1, workers=2)
    cluster = Cluster(run.metadata.name).wait_ready()
    try:
        log_path = arguments.log_path or cluster.status.paths["output"]
        print(f"held-out accuracy: {train(cluster, arguments.steps, log_path):.4f}")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
