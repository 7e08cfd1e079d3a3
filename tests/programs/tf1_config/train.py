"""Parameter servers by TF_CONFIG only; no argument mentions them."""

import json
import os

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=kind, task_index=index)
if kind == "ps":
    server.join()
me = f"/job:worker/task:{index}"
with tf.device(tf.train.replica_device_setter(worker_device=me, cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    count = tf.assign_add(step, 1)
with tf.train.MonitoredTrainingSession(
    server.target,
    is_chief=index == 0,
    hooks=[tf.train.StopAtStepHook(last_step=100)],
    config=tf.ConfigProto(device_filters=["/job:ps", me]),
) as session:
    while not session.should_stop():
        session.run(count)
print("done")
