"""ParameterServerStrategy with a chief and an evaluator: one program, four kinds of task.

    tfcluster launch --chief --workers 2 --ps 1 --evaluator --success-policy chief \
        examples/parameter_server_keras.py -- --epochs 5

The chief coordinates; workers and parameter servers only serve, and never end by themselves, so
the chief's success ends the run. The evaluator is outside the cluster: it measures each
checkpoint on held-out digits. The program is plain TensorFlow: it reads its role from TF_CONFIG.
"""

import argparse
import os

# Keras 3 cannot train on this strategy; tf_keras, which is Keras 2, can.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import digits
import tensorflow as tf

STEPS_PER_EPOCH = 100


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
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
        steps_per_execution=10,
    )
    return model


def serve(resolver):
    """Run a TensorFlow server until the run ends."""
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()


def coordinate(resolver, arguments, checkpoints):
    """Train: variables live on the parameter servers, steps run on the workers."""
    data, (x, y) = digits.load()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = make_model()
        last = tf.train.latest_checkpoint(checkpoints)
        if last:  # this is a restart: continue at the last checkpoint
            model.load_weights(last)
    done = int(last.rpartition("-")[2]) if last else 0
    print(f"epochs done before: {done}", flush=True)
    dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(digits.TRAIN).repeat().batch(64)
    model.fit(
        dataset,
        initial_epoch=done,
        epochs=arguments.epochs,
        steps_per_epoch=STEPS_PER_EPOCH,
        callbacks=[
            tf.keras.callbacks.TensorBoard(arguments.log_path),
            tf.keras.callbacks.ModelCheckpoint(
                os.path.join(checkpoints, "ckpt-{epoch}"), save_weights_only=True
            ),
        ],
        verbose=2,
    )
    accuracy = (model(x).numpy().argmax(axis=1) == y).mean()
    print(f"held-out accuracy: {accuracy:.4f}", flush=True)


def evaluate(arguments, checkpoints):
    """Measure each checkpoint as it appears, without a strategy: the evaluator is not in the
    cluster.
    """
    _, held_out = digits.load()
    model = make_model()
    model.optimizer.build(model.trainable_variables)  # checkpoints hold the optimizer's state too
    evaluator = tf.keras.utils.SidecarEvaluator(
        model,
        tf.data.Dataset.from_tensor_slices(held_out).batch(99),
        checkpoints,
        max_evaluations=arguments.epochs,
        callbacks=[tf.keras.callbacks.TensorBoard(os.path.join(arguments.log_path, "evaluator"))],
    )
    evaluator.start()


def main():
    arguments = parse_arguments()
    checkpoints = os.path.join(arguments.log_path, "checkpoints")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    elif resolver.task_type == "evaluator":
        evaluate(arguments, checkpoints)
    else:
        coordinate(resolver, arguments, checkpoints)


if __name__ == "__main__":
    main()
