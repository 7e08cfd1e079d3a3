"""A planted program: synchronous training without parameter servers. All workers make each step
together; one of them may have longer texts than the others, or a deadlock.
"""

import argparse
import json
import os
import queue
import threading
import time

import numpy as np
import tensorflow as tf

WORDS, WIDTH, HIDDEN, CLASSES, BATCH, LENGTH = 1000, 64, 512, 10, 128, 32
LOCKED_AFTER = 15.0


class Texts:
    """A few batches that a thread has made in advance."""

    def __init__(self, length, index):
        self._random, self._length = np.random.RandomState(index), length
        self._lock, self._made = threading.Lock(), queue.Queue(4)
        threading.Thread(target=self._fill, daemon=True).start()

    def _make(self):
        return self._random.randint(0, WORDS, (BATCH, self._length)).astype("int32")

    def _fill(self):
        while True:
            texts = self._make()
            with self._lock:
                self._made.put(texts)  # waits for a full queue while it holds the lock

    def take(self):
        """Return the next batch."""
        return self._made.get()

    def clear(self):
        """Remove what was made in advance."""
        with self._lock:  # waits for ever if `_fill` holds the lock and the queue is full
            while not self._made.empty():
                self._made.get()


def main():
    """Train as one worker; all workers end as soon as the time of one of them is over."""
    parser = argparse.ArgumentParser()
    for name, kind, default in (
        ("seconds", float, 42.0), ("slow", int, -1), ("locked", int, -1),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=default)
    args = parser.parse_args()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        variables = [
            tf.Variable(
                tf.random.normal(shape, stddev=0.1), aggregation=tf.VariableAggregation.MEAN
            )
            for shape in ((WORDS, WIDTH), (WIDTH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))
        ]

    def learn(words, over):
        table, kernel, second, scores = variables
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.tensordot(tf.gather(table, words), kernel, 1))
            hidden = tf.nn.relu(tf.tensordot(hidden, second, 1))
            logits = tf.matmul(tf.reduce_mean(hidden, 1), scores)
            labels = words[:, 0] % CLASSES
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))
        return tf.distribute.get_replica_context().all_reduce("sum", [loss, tf.identity(over)])

    @tf.function
    def step(words, over):
        return strategy.run(learn, (words, over))

    texts = Texts(LENGTH * (4 if index == args.slow else 1), index)
    began, count, over, said = time.monotonic(), 0, 0.0, 0.0
    while not over:
        now = time.monotonic() - began
        if index == args.locked and now > LOCKED_AFTER:
            texts.clear()
        loss, over = step(texts.take(), tf.constant(float(now > args.seconds)))
        count += 1
        if now - said >= 0.5:
            said = now
            print(f"step {count} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
