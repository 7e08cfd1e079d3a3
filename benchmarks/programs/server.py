"""A TensorFlow server as in the tutorials, started by hand for comparison."""

import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", required=True)
parser.add_argument("--worker_hosts", required=True)
parser.add_argument("--job_name", required=True)
parser.add_argument("--task_index", type=int, required=True)
options = parser.parse_args()

cluster = tf.train.ClusterSpec(
    {"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")}
)
server = tf.distribute.Server(cluster, job_name=options.job_name, task_index=options.task_index)
server.join()
