"""In-Graph replication, TensorFlow 1 style: one client builds one graph that spans the cluster.

    python examples/in_graph_tf1.py --steps 600

Parameter servers and workers run bare TensorFlow servers. This program launches them, feeds each
worker a batch, lets a parameter server average the gradients, and stops the cluster. In a notebook,
the first lines of main() are replaced by `cluster = %tfcluster launch --mode in-graph --ps 1
--workers 2`.
"""

import argparse
import os

import digits
import numpy as np
import tensorflow.compat.v1 as tf

from tfcluster_magic import Cluster, ClusterManager


def build(workers):
    """Build the graph: a copy of the network (a tower) on each worker, the variables on ps-0."""
    with tf.device("/job:ps/task:0"):
        w1 = tf.get_variable("w1", [digits.PIXELS, 128])
        b1 = tf.get_variable("b1", [128], initializer=tf.zeros_initializer())
        w2 = tf.get_variable("w2", [128, digits.CLASSES])
        b2 = tf.get_variable("b2", [digits.CLASSES], initializer=tf.zeros_initializer())
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdamOptimizer(5e-3)

    def network(x):
        return tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2

    inputs, losses, gradients = [], [], []
    for i in range(workers):
        with tf.device(f"/job:worker/task:{i}"):
            x = tf.placeholder(tf.float32, [None, digits.PIXELS])
            y = tf.placeholder(tf.int64, [None])
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=network(x))
            )
            inputs.append((x, y))
            losses.append(loss)
            gradients.append(tf.gradients(loss, [w1, b1, w2, b2]))

    with tf.device("/job:ps/task:0"):
        loss = tf.add_n(losses) / workers
        mean = [
            tf.add_n(tower_gradients) / workers for tower_gradients in zip(*gradients, strict=True)
        ]
        train_op = optimizer.apply_gradients(
            zip(mean, [w1, b1, w2, b2], strict=True), global_step=step
        )
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [None, digits.PIXELS])
        scores = network(x)
    return inputs, loss, train_op, step, (x, scores)


def train(cluster, steps, log_path):
    """Train on a connected cluster; return the share of held-out digits that are read correctly."""
    data, (held_out_x, held_out_y) = digits.load()
    workers = cluster.resolver().cluster_spec().num_tasks("worker")
    with tf.Graph().as_default() as graph:
        inputs, loss, train_op, step, (x, scores) = build(workers)
        summary = tf.summary.scalar("loss", loss)
        saver = tf.train.Saver()
        initializer = tf.global_variables_initializer()
        feeds = [digits.batches(data, seed=i) for i in range(workers)]

        with cluster.session(graph) as session, tf.summary.FileWriter(log_path, graph) as writer:
            session.run(initializer)
            for i in range(steps):
                feed = {}
                for (tower_x, tower_y), batches in zip(inputs, feeds, strict=True):
                    feed[tower_x], feed[tower_y] = next(batches)
                _, loss_now, summary_now, step_now = session.run(
                    [train_op, loss, summary, step], feed
                )
                if i % 50 == 0:
                    writer.add_summary(summary_now, step_now)
                    print(f"step {step_now} loss {loss_now:.4f}", flush=True)
            saver.save(session, os.path.join(log_path, "model.ckpt"), global_step=step)
            predicted = session.run(scores, {x: held_out_x}).argmax(axis=1)
    return np.mean(predicted == held_out_y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--log_path", help="folder for checkpoints and summaries")
    arguments = parser.parse_args()

    run = ClusterManager().launch(mode="in-graph", name="in-graph-tf", ps=1, workers=2)
    cluster = Cluster(run.metadata.name).wait_ready()
    try:
        log_path = arguments.log_path or cluster.status.paths["output"]
        print(f"held-out accuracy: {train(cluster, arguments.steps, log_path):.4f}")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
