"""An Estimator with its evaluator, as written for TensorFlow 1.4 to 2.15."""

import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="model")
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()


def inputs():
    data = tf.data.Dataset.from_tensor_slices(({"x": [[1.0], [2.0], [3.0], [4.0]]}, [2.0, 4, 6, 8]))
    return data.repeat().batch(4)


config = tf.estimator.RunConfig(model_dir=args.model_dir, save_checkpoints_steps=20)
estimator = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], config=config)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(inputs, max_steps=args.steps),
    tf.estimator.EvalSpec(inputs, steps=2, start_delay_secs=0, throttle_secs=1),
)
print("evaluated", config.task_type, config.task_id)
