"""Between-Graph training that records the time of each step until it is told to end.

The program runs unchanged by hand and in TFCluster. At its first step, it writes the file
`<marks>/<job>-<index>.first`. It trains until the file `<marks>/stop` exists, and then writes the
times of all steps to `<marks>/<job>-<index>.steps`.
"""

import argparse
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", required=True)
parser.add_argument("--worker_hosts", required=True)
parser.add_argument("--job_name", required=True)
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--marks", required=True)
options, _ = parser.parse_known_args()

cluster = tf.train.ClusterSpec(
    {"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")}
)
server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
if options.job_name == "ps":
    server.join()

mark = os.path.join(options.marks, f"{options.job_name}-{options.task_index}")
stop = os.path.join(options.marks, "stop")
me = f"/job:worker/task:{options.task_index}"
random = np.random.RandomState(options.task_index)
x = random.rand(64, 64).astype("float32")
y = random.randint(0, 10, 64)

with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(worker_device=me, cluster=cluster)):
        inputs = tf.placeholder(tf.float32, [None, 64])
        labels = tf.placeholder(tf.int64, [None])
        weights = tf.get_variable("weights", [64, 128])
        hidden = tf.nn.relu(tf.matmul(inputs, weights))
        scores = tf.matmul(hidden, tf.get_variable("scores", [128, 10]))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(losses)
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    config = tf.ConfigProto(device_filters=["/job:ps", me])
    times = []
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief=options.task_index == 0, config=config
    ) as session:
        while not os.path.exists(stop):
            session.run(train, {inputs: x, labels: y})
            times.append(time.time())
            if len(times) % 100 == 0:
                print(f"step {len(times)}", flush=True)
            if len(times) == 1:
                with open(f"{mark}.new", "w") as file:
                    file.write(str(times[0]))
                os.rename(f"{mark}.new", f"{mark}.first")
    with open(f"{mark}.new", "w") as file:
        file.write("\n".join(map(str, times)))
    os.rename(f"{mark}.new", f"{mark}.steps")
