"""A Supervisor with its own session, and options spelled with hyphens."""

import argparse

import tensorflow.compat.v1 as tf


def parse():
    parser = argparse.ArgumentParser(description="Count to a number, together.")
    parser.add_argument("--ps-hosts", required=True)
    parser.add_argument("--worker-hosts", required=True)
    parser.add_argument("--job-name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task-index", type=int, required=True)
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


def main():
    args = parse()
    tf.disable_v2_behavior()
    hosts = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    cluster = tf.train.ClusterSpec(hosts)
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
    me = f"/job:worker/task:{args.task_index}"
    with tf.device(tf.train.replica_device_setter(worker_device=me, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        count = tf.assign_add(step, 1)
    supervisor = tf.train.Supervisor(
        is_chief=args.task_index == 0, logdir=args.log_dir, global_step=step, recovery_wait_secs=1
    )
    config = tf.ConfigProto(device_filters=["/job:ps", me])
    with supervisor.managed_session(server.target, config=config) as session:
        now = 0
        while not supervisor.should_stop() and now < args.steps:
            now = session.run(count)
    print("counted to", now)


main()
