from absl import app, flags, logging

import settings  # defines the flags of the cluster

flags.DEFINE_integer("steps", 5, "how long")
flags.DEFINE_string("data_dir", "/nowhere/unless/set", "a default that the author means")
FLAGS = flags.FLAGS


def main(argv):
    assert FLAGS.data_dir == "/nowhere/unless/set", FLAGS.data_dir
    assert FLAGS.job_name == "worker", FLAGS.job_name
    for step in range(FLAGS.steps):
        logging.info("step %d of %s", step, settings.me())
    print("I am", settings.me(), "of", len(FLAGS.worker_hosts))


if __name__ == "__main__":
    app.run(main)
