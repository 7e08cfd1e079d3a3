"""A planted program: a chief that hands steps to workers, with variables on parameter servers."""

import argparse
import time

import tensorflow as tf

WORDS, WIDTH, HIDDEN, CLASSES, BATCH, LENGTH = 1000, 64, 512, 10, 128, 32


def batches():
    """Return an endless data set of batches of random texts."""
    texts = tf.random.uniform((1000, LENGTH), maxval=WORDS, dtype=tf.int32)
    return tf.data.Dataset.from_tensor_slices(texts).shuffle(1000).repeat().batch(BATCH).prefetch(2)


def coordinate(resolver, seconds):
    """Train as the chief, until the time is over."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        table, kernel, second, scores = variables = [
            tf.Variable(tf.random.normal(shape, stddev=0.1))
            for shape in ((WORDS, WIDTH), (WIDTH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))
        ]

    def learn(words):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.tensordot(tf.gather(table, words), kernel, 1))
            hidden = tf.nn.relu(tf.tensordot(hidden, second, 1))
            logits = tf.matmul(tf.reduce_mean(hidden, 1), scores)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=words[:, 0] % CLASSES, logits=logits
            )
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))
        return loss

    @tf.function
    def step(iterator):
        return strategy.run(learn, (next(iterator),))

    data = coordinator.create_per_worker_dataset(batches)
    iterator = iter(data)
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(20)]
        coordinator.join()
        count += len(losses)
        print(f"step {count} loss {losses[-1].fetch():.4f}", flush=True)


def main():
    """Be the chief, a parameter server or a worker, as TF_CONFIG says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=42.0)
    args = parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("ps", "worker"):
        tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
        ).join()
    coordinate(resolver, args.seconds)


if __name__ == "__main__":
    main()
