"""An early distributed program: addresses as flags, one parameter server, asynchronous steps."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.app.flags.DEFINE_string("ps_hosts", "", "parameter servers, host:port by comma")
tf.app.flags.DEFINE_string("worker_hosts", "", "workers, host:port by comma")
tf.app.flags.DEFINE_string("job_name", "", "ps or worker")
tf.app.flags.DEFINE_integer("task_index", 0, "index of the task")
tf.app.flags.DEFINE_integer("steps", 200, "steps of all workers")
FLAGS = tf.app.flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec(
        {"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")}
    )
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    worker = "/job:worker/task:%d" % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        loss = tf.square(weight - 3.0)
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.steps)]
    config = tf.ConfigProto(device_filters=["/job:ps", worker])
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief=FLAGS.task_index == 0, hooks=hooks, config=config
    ) as session:
        while not session.should_stop():
            _, now, error = session.run([train, step, loss])
            print("step %d, loss %.5f" % (now, error))
    print("worker %d is done" % FLAGS.task_index)


if __name__ == "__main__":
    tf.app.run()
