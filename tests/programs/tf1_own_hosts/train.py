"""The hosts are a constant in the program; a task gets only its job and its index."""

import argparse

import tensorflow.compat.v1 as tf

PS = ["127.0.0.1:29731"]
WORKERS = ["127.0.0.1:29732", "127.0.0.1:29733"]
parser = argparse.ArgumentParser()
parser.add_argument("--job_name", default="worker")
parser.add_argument("--task_index", type=int, default=0)
args = parser.parse_args()
tf.disable_v2_behavior()
cluster = tf.train.ClusterSpec({"ps": PS, "worker": WORKERS})
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
if args.job_name == "ps":
    server.join()
me = f"/job:worker/task:{args.task_index}"
with tf.device(tf.train.replica_device_setter(worker_device=me, cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    count = tf.assign_add(step, 1)
hooks = [tf.train.StopAtStepHook(last_step=500)]
config = tf.ConfigProto(device_filters=["/job:ps", me])
with tf.train.MonitoredTrainingSession(
    server.target, is_chief=args.task_index == 0, hooks=hooks, config=config
) as session:
    while not session.should_stop():
        session.run(count)
print("done")
