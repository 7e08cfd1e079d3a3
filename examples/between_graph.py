"""Between-Graph replication, TensorFlow 1 style: every worker builds the graph and trains it
asynchronously.

    tfcluster launch --ps 1 --workers 2 examples/between_graph.py -- --steps 1000

The program is plain TensorFlow. By hand, start it once for each task:

    python between_graph.py --ps_hosts=localhost:2220 --worker_hosts=localhost:2221,localhost:2222 \
        --job_name=worker --task_index=0
"""

import os

import digits
import numpy as np
import tensorflow.compat.v1 as tf

flags = tf.flags
flags.DEFINE_list("ps_hosts", [], "addresses of the parameter servers")
flags.DEFINE_list("worker_hosts", [], "addresses of the workers")
flags.DEFINE_enum("job_name", "worker", ["ps", "worker"], "which kind of task this process is")
flags.DEFINE_integer("task_index", 0, "which task of its kind; worker 0 is the chief")
flags.DEFINE_string(
    "log_path",
    os.environ.get("TFCLUSTER_OUTPUT_DIR", "log"),
    "folder for checkpoints and summaries",
)
flags.DEFINE_integer("steps", 1000, "training steps of all workers together")
FLAGS = flags.FLAGS


def network(x):
    """Return the scores of the ten digits, computed from 64 pixels through 128 hidden units."""
    w1 = tf.get_variable("w1", [digits.PIXELS, 128])
    b1 = tf.get_variable("b1", [128], initializer=tf.zeros_initializer())
    w2 = tf.get_variable("w2", [128, digits.CLASSES])
    b2 = tf.get_variable("b2", [digits.CLASSES], initializer=tf.zeros_initializer())
    return tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2


def train(cluster, server, data):
    """Train until all workers together have done FLAGS.steps steps."""
    is_chief = FLAGS.task_index == 0
    this_worker = f"/job:worker/task:{FLAGS.task_index}"
    # Variables go to the parameter servers, everything else to this worker.
    with tf.device(tf.train.replica_device_setter(worker_device=this_worker, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, digits.PIXELS])
        y = tf.placeholder(tf.int64, [None])
        logits = network(x)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        )
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
        step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdamOptimizer(3e-3).minimize(loss, global_step=step)
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)

    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        checkpoint_dir=FLAGS.log_path,
        save_checkpoint_steps=200,
        save_summaries_steps=50,
        hooks=[tf.train.StopAtStepHook(last_step=FLAGS.steps)],
        # A worker connects only to the parameter servers, so it continues if another worker is
        # lost.
        config=tf.ConfigProto(device_filters=["/job:ps", this_worker]),
    ) as session:
        for i, (batch_x, batch_y) in enumerate(digits.batches(data, seed=FLAGS.task_index)):
            if session.should_stop():
                break
            _, loss_now, step_now = session.run([train_op, loss, step], {x: batch_x, y: batch_y})
            if i % 100 == 0:
                print(f"worker {FLAGS.task_index}: step {step_now} loss {loss_now:.4f}", flush=True)


def evaluate(held_out):
    """Return the share of the held-out digits that the last checkpoint reads correctly."""
    x, y = held_out
    with tf.Graph().as_default(), tf.Session() as session:
        scores = network(tf.constant(x))
        tf.train.Saver().restore(session, tf.train.latest_checkpoint(FLAGS.log_path))
        return np.mean(session.run(scores).argmax(axis=1) == y)


def main(_):
    tf.logging.set_verbosity(tf.logging.ERROR)  # TensorFlow 1 logs every step of a session
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts, "worker": FLAGS.worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    data, held_out = digits.load()
    with tf.Graph().as_default():
        train(cluster, server, data)
    if FLAGS.task_index == 0:
        print(f"held-out accuracy: {evaluate(held_out):.4f}", flush=True)


if __name__ == "__main__":
    tf.app.run(main)
