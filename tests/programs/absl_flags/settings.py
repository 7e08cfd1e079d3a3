from absl import flags

flags.DEFINE_list("worker_hosts", [], "all workers")
flags.DEFINE_string("job_name", None, "kind of this task")
flags.DEFINE_integer("task_index", None, "number of this task")
flags.mark_flag_as_required("job_name")


def me():
    return f"{flags.FLAGS.job_name}-{flags.FLAGS.task_index}"
