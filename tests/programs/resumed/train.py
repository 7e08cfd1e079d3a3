"""A program that continues counting from its last checkpoint to a fixed step."""

import os

import tensorflow as tf

folder = os.path.join(os.environ["TFCLUSTER_DATA_DIR"], "counting")
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(step=step)
manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)
while int(step) < 20:
    step.assign_add(1)
    print(f"step {int(step)}/20")
    if int(step) % 10 == 0:
        manager.save(checkpoint_number=int(step))
print("stands at", int(step))
