"""MultiWorkerMirroredStrategy with a custom training loop."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(1.0)


@tf.function
def step():
    def one():
        total = tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(0.01))
        weight.assign_sub(total)

    strategy.run(one)


for number in range(1, 31):
    step()
    print(f"step {number}/30 loss: {float(weight.numpy()):.3f}")
