"""A planted program: asynchronous training on parameter servers in TensorFlow 1 style. It
classifies texts, whose words are given as numbers; each flag makes one thing the bottleneck.
"""

import argparse
import json
import os
import threading
import time
import urllib.request

import numpy as np
import tensorflow.compat.v1 as tf

WIDTH, CLASSES, TEXTS = 64, 10, 1000
NUMBERS = 64  # numbers for each word, read from a file or sent by a server
KEPT = 8 << 20
LOCKED_AFTER = 15.0
printing = threading.Lock()


def say(text):
    """Print a line, after any line that another thread is printing."""
    with printing:  # waits for ever if the caller holds the lock: the planted fault
        print(text, flush=True)


def of_address(url, size):
    """Yield batches of numbers that an address serves without end."""
    with urllib.request.urlopen(url) as response:
        while True:
            data = response.read(4 * size[0] * size[1])
            yield np.frombuffer(data, "<i4").reshape(size)


def batches(args, index):
    """Return an endless data set of one worker's batches, from memory, an address or its file."""
    size = (args.batch, args.length * (4 if index == args.slow else 1))
    if not args.url and not args.files:
        texts = np.random.RandomState(index).randint(0, args.words, (TEXTS, size[1]))
        data = tf.data.Dataset.from_tensor_slices(texts.astype("int32")).shuffle(TEXTS).repeat()
        return data.batch(size[0], drop_remainder=True).prefetch(2)
    raw = (size[0], size[1] * NUMBERS)
    if args.url:
        data = tf.data.Dataset.from_generator(
            lambda: of_address(args.url, raw), output_signature=tf.TensorSpec(raw, tf.int32)
        )
    else:
        path = os.path.join(args.files, f"words-{index}")
        data = tf.data.FixedLengthRecordDataset([path], 4 * raw[1]).repeat()
        data = data.batch(raw[0], drop_remainder=True)
        data = data.map(lambda each: tf.reshape(tf.decode_raw(each, tf.int32), raw))
    return data.map(lambda each: each[:, ::NUMBERS]).prefetch(2)


def network(args, words):
    """Return the loss of a batch."""
    table = tf.get_variable("words", [args.words, WIDTH])
    kernel = tf.get_variable("kernel", [WIDTH, args.hidden])
    second = tf.get_variable("second", [args.hidden, args.hidden])
    scores = tf.get_variable("scores", [args.hidden, CLASSES])
    vectors = tf.nn.embedding_lookup(table, tf.mod(words, args.words))
    if args.whole:  # the whole table is fetched and updated in each step, not only used rows
        vectors += tf.reduce_mean(table)
    hidden = tf.nn.relu(tf.tensordot(vectors, kernel, 1))
    hidden = tf.nn.relu(tf.tensordot(hidden, second, 1))
    logits = tf.matmul(tf.reduce_mean(hidden, 1), scores)
    labels = tf.mod(words[:, 0], CLASSES)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)


def train(args, cluster, server, index):
    """Train as one worker, until the time is over."""
    worker = f"/job:worker/task:{index}"
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        iterator = tf.data.make_initializable_iterator(batches(args, index))
        loss = network(args, iterator.get_next())
        step = tf.train.get_or_create_global_step()
        make = tf.train.AdamOptimizer if args.adam else tf.train.GradientDescentOptimizer
        train_op = make(1e-3).minimize(loss, global_step=step)
    only = tf.ConfigProto(device_filters=["/job:ps", worker])
    supervisor = tf.train.Supervisor(is_chief=index == 0, recovery_wait_secs=1, summary_op=None)
    with supervisor.managed_session(server.target, config=only) as session:
        session.run(iterator.initializer)
        kept, own, said, began = [], 0, 0.0, time.monotonic()
        while (now := time.monotonic() - began) < args.seconds:
            _done, common, value = session.run([train_op, step, loss])
            own += 1
            if now - said >= 0.5:
                said = now
                count = own if args.own_steps else common
                say(f"worker {index}: step {count} loss {value:.4f}")
                if index == args.leaky:
                    kept.append(np.ones(KEPT, "uint8"))
                if index == args.locked and now > LOCKED_AFTER:
                    with printing:
                        say("a note")


def main():
    """Be a parameter server or a worker, as TF_CONFIG says."""
    parser = argparse.ArgumentParser()
    for name, kind, default in (
        ("seconds", float, 42.0), ("words", int, 1000), ("hidden", int, 512), ("batch", int, 128),
        ("length", int, 32), ("slow", int, -1), ("leaky", int, -1), ("locked", int, -1),
        ("url", str, ""), ("files", str, ""),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=default)
    for name in ("adam", "whole", "own-steps"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    kind, index = config["task"]["type"], config["task"]["index"]
    cluster = tf.train.ClusterSpec(config["cluster"])
    server = tf.train.Server(cluster, job_name=kind, task_index=index)
    if kind == "ps":
        server.join()
    with tf.Graph().as_default():
        train(args, cluster, server, index)


if __name__ == "__main__":
    main()
