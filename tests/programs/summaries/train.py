"""A program that writes curves to ./logs, as most programs do."""

import tensorflow as tf

writer = tf.summary.create_file_writer("logs/today")
with writer.as_default():
    for step in range(1, 31):
        tf.summary.scalar("loss", 1.0 / step, step=step)
writer.close()
print("curves are in logs/today")
