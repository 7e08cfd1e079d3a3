"""Programs as users write them, written for this project, each with its arguments and its task
types.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ADDRESSES = ("ps_hosts", "worker_hosts", "job_name", "task_index")


@dataclass(frozen=True)
class ProgramText:
    """A program and the expected result of its launch.

    `files` are files next to the entry. `passed` are the flags that the program gets from
    TFCluster; `left_out` are the flags that it does not get, each with the message that gives the
    reason. `types` are the task types besides workers.
    """

    name: str
    text: str
    passed: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    entry: str = "train.py"

    def __str__(self) -> str:
        return self.name


TF1_FLAGS = """
import tensorflow as tf
tf.app.flags.DEFINE_string("ps_hosts", "", "host:port of parameter servers")
tf.app.flags.DEFINE_string("worker_hosts", "", "host:port of workers")
tf.app.flags.DEFINE_string("job_name", "", "ps or worker")
tf.app.flags.DEFINE_integer("task_index", 0, "which one")
FLAGS = tf.app.flags.FLAGS
"""

COORDINATOR = """
import os
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
def serve():
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type,
                         task_index=resolver.task_id).join()
def train():
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
"""

PROGRAMS = (
    ProgramText(
        "tf1 flags",
        TF1_FLAGS
        + """
tf.app.flags.DEFINE_string("data_dir", "/tmp/mnist", "where the images are")
tf.app.flags.DEFINE_string("log_dir", None, "where logs are written")
def main(_):
    if FLAGS.job_name == "ps":
        server.join()
tf.app.run()
""",
        (*ADDRESSES, "log_dir"),
        ("ps",),
    ),
    ProgramText(
        "compat flags by an alias",
        """
import tensorflow.compat.v1 as tf
flags = tf.flags
flags.DEFINE_list("ps_hosts", [], "")
flags.DEFINE_list("worker_hosts", [], "")
flags.DEFINE_enum("job_name", None, ["ps", "worker"], "")
flags.DEFINE_integer("task_index", 0, "")
print(flags.FLAGS.ps_hosts)
""",
        ADDRESSES,
        ("ps",),
    ),
    ProgramText(
        "absl with required folders",
        """
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "The input files.")
flags.DEFINE_string("output_dir", None, "Where checkpoints are written.")
flags.DEFINE_string("model_dir", "/tmp/model", "Where the model is.")
def main(_):
    print(FLAGS.data_dir)
if __name__ == "__main__":
    flags.mark_flag_as_required("data_dir")
    flags.mark_flags_as_required(["output_dir"])
    app.run(main)
""",
        ("data_dir", "output_dir"),
    ),
    ProgramText(
        "absl flags in an imported file",
        "import config\nfrom absl import app\napp.run(lambda _: print(config.FLAGS.log_dir))\n",
        ("log_dir",),
        files={
            "config.py": "from absl import flags\nFLAGS = flags.FLAGS\n"
            "flags.DEFINE_string('log_dir', '', 'event files')\n"
        },
    ),
    ProgramText(
        "absl flags in a file that is imported too late",
        "from absl import app\ndef main(_):\n    import config\napp.run(main)\n",
        files={"config.py": "from absl import flags\nflags.DEFINE_string('log_dir', '', '')\n"},
    ),
    ProgramText(
        "absl knows a name only as it is written",
        "from absl import app, flags\nflags.DEFINE_string('log-dir', None, '')\napp.run(print)\n",
    ),
    ProgramText(
        "a helper's own command line",
        """
import argparse
import loader
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
print(parser.parse_args())
""",
        files={
            "loader.py": """
import argparse
def batches():
    return []
def look():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.parse_args()
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir")
    parser.parse_args()
"""
        },
    ),
    ProgramText(
        "defaults stay",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data_dir", default="./data")
parser.add_argument("--logdir", default=f"/tmp/{__name__}")
parser.add_argument("--model_dir")
parser.set_defaults(model_dir="here")
print(parser.parse_args())
""",
    ),
    ProgramText(
        "hyphens",
        """
import argparse
parser = argparse.ArgumentParser()
for_cluster = parser.add_argument_group("cluster")
for_cluster.add_argument("--ps-hosts", required=True)
for_cluster.add_argument("--worker-hosts", required=True)
parser.add_argument("-j", "--job-name", required=True, choices=["ps", "worker"])
parser.add_argument("--task-index", type=int, required=True)
parser.add_argument("--data-dir", required=True, help="images")
print(parser.parse_args())
""",
        ("ps-hosts", "worker-hosts", "job-name", "task-index", "data-dir"),
        ("ps",),
    ),
    ProgramText(
        "both spellings of one flag",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--ps-hosts", "--ps_hosts")
parser.add_argument("--worker-hosts")
parser.add_argument("--worker_hosts")
print(parser.parse_known_args())
""",
        ("ps-hosts", "worker-hosts"),
        ("ps",),
    ),
    ProgramText(
        "argparse before tf.app.run",
        """
import argparse, sys
import tensorflow as tf
FLAGS = None
def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(",")})
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", type=str, default="")
    parser.add_argument("--worker_hosts", type=str, default="")
    parser.add_argument("--job_name", type=str, default="")
    parser.add_argument("--task_index", type=int, default=0)
    FLAGS, rest = parser.parse_known_args()
    tf.app.run(main=main, argv=[sys.argv[0]] + rest)
""",
        ADDRESSES,
        ("ps",),
    ),
    ProgramText(
        "strict argparse beside the flags of a library",
        """
import argparse
import models
parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint_dir", required=True, help="where checkpoints are saved")
print(parser.parse_args())
""",
        ("checkpoint_dir",),
        files={
            "models.py": "import tensorflow as tf\ntf.app.flags.DEFINE_string('data_dir', '', '')\n"
        },
    ),
    ProgramText(
        "a function of another file reads the arguments",
        "from options import parse_args\n\ndef main():\n    print(parse_args())\n\nmain()\n",
        ("log_dir",),
        files={
            "options.py": "import argparse\ndef parse_args():\n    p = argparse.ArgumentParser()\n"
            "    add(p)\n    return p.parse_args()\ndef add(p):\n    p.add_argument('--log_dir')\n"
        },
    ),
    ProgramText(
        "a parser that reads a list of its own",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data_dir")
print(parser.parse_args([]), parser.parse_args("--data_dir x".split()))
""",
    ),
    ProgramText(
        "subcommands",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--log_dir")
commands = parser.add_subparsers()
train = commands.add_parser("train")
train.add_argument("--output_dir", required=True)
print(parser.parse_args())
""",
        ("log_dir",),
        left_out={"output_dir": "FlagOfSubcommand"},
    ),
    ProgramText(
        "words that are no folders",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--log_dir", action="store_true")
parser.add_argument("--train_dir", type=int)
parser.add_argument("--data_dir", choices=["a", "b"])
parser.add_argument("output_dir")
parser.add_argument("--data_directory")
print(parser.parse_args())
""",
    ),
    ProgramText(
        "folders that mean something else",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--train_dir", required=True, help="folder of training images")
parser.add_argument("--model_dir", help="folder of a pretrained model to load")
parser.add_argument("--data_dir", help="where images are; synthetic data without it")
print(parser.parse_args())
""",
        left_out=dict.fromkeys(("train_dir", "model_dir", "data_dir"), "FlagUnclear"),
    ),
    ProgramText(
        "a train_dir that is written",
        "import tensorflow as tf\n"
        "tf.app.flags.DEFINE_string('train_dir', '', 'Where to write checkpoints.')\n"
        "print(tf.app.flags.FLAGS.train_dir)\n",
        ("train_dir",),
    ),
    ProgramText(
        "a job_name that is a name",
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--job_name', default='run 1')\nprint(p.parse_args())\n",
        left_out={"job_name": "FlagUnrelated"},
    ),
    ProgramText(
        "click",
        """
import click
@click.command()
@click.option("--data-dir", required=True, type=click.Path())
@click.option("--model-dir", help="Where the model is saved.")
@click.option("--log-dir", default="logs")
@click.option("--job-name", prompt=True)
@click.option("--task-index", type=int, default=0)
def main(**options):
    print(options)
if __name__ == "__main__":
    main()
""",
        ("job-name", "task-index", "data-dir", "model-dir"),
    ),
    ProgramText(
        "click commands of a group",
        """
import click
@click.group()
@click.option("--log-dir")
def cli(log_dir):
    pass
@cli.command()
@click.option("--data-dir", required=True)
def train(data_dir):
    print(data_dir)
cli()
""",
        ("log-dir",),
        left_out={"data-dir": "FlagOfSubcommand"},
    ),
    ProgramText(
        "getopt",
        "import getopt, sys\n"
        "print(getopt.getopt(sys.argv[1:], '', ['job_name=', 'task_index=', 'data_dir=', 'x']))\n",
        ("job_name", "task_index"),
    ),
    ProgramText(
        "optparse",
        "from optparse import OptionParser\np = OptionParser()\np.add_option('--logdir')\n"
        "print(p.parse_args())\n",
        ("logdir",),
    ),
    ProgramText(
        "arguments read by hand",
        "import sys\nfor word in sys.argv:\n    if word.startswith('--worker_hosts='):\n"
        "        print(word)\n    if word.startswith('--task_index='):\n        print(word)\n",
        ("worker_hosts", "task_index"),
    ),
    ProgramText(
        "mentions",
        '"""Usage: train.py --ps_hosts=HOSTS --data_dir=DIR"""\n'
        "import json\n# parser.add_argument('--ps_hosts')\n"
        "print('use --ps_hosts and --worker_hosts', json.dumps({'log_path': 1}))\n"
        "def unused(parser):\n    parser.add_argument('--log_dir')\n    parser.parse_args()\n",
        files={
            "other.py": "import argparse\np = argparse.ArgumentParser()\n"
            "p.add_argument('--ps_hosts')\np.parse_args()\n"
        },
    ),
    ProgramText(
        "a folder with relative imports",
        "from lab.cli import main\nmain()\n",
        ("data_dir",),
        files={
            "lab/__init__.py": "",
            "lab/cli.py": "from . import options as o\ndef main():\n    print(o.read())\n",
            "lab/options.py": "import argparse\ndef read():\n    p = argparse.ArgumentParser()\n"
            "    p.add_argument('--data_dir')\n    return p.parse_args()\n",
        },
        entry="main.py",
    ),
    ProgramText(
        "a script that hands its arguments on",
        '# --worker_hosts\nset -e\nexec python -u \\\n  src/train.py --log_dir=/tmp/x "$@"\n',
        (*ADDRESSES, "data_dir"),
        ("ps",),
        files={
            "src/train.py": TF1_FLAGS + "tf.app.flags.DEFINE_string('log_dir', '', '')\n"
            "tf.app.flags.DEFINE_string('data_dir', '', '')\nprint(FLAGS.ps_hosts)\n"
        },
        entry="run.sh",
    ),
    ProgramText(
        "a script that starts a module of a package",
        "python3 -m lab.train $@\n",
        ("log_dir",),
        ("ps",),
        files={
            "lab/__init__.py": "",
            "lab/train.py": "from lab.options import read\nfrom .model import build\n"
            "print(read())\nbuild()\n",
            "lab/options.py": "import argparse\ndef read():\n    p = argparse.ArgumentParser()\n"
            "    p.add_argument('--log_dir')\n    return p.parse_args()\n",
            "lab/model.py": "import tensorflow as tf\ndef build():\n"
            "    return tf.distribute.ParameterServerStrategy(None)\n",
        },
        entry="run.sh",
    ),
    ProgramText(
        "a script that reads its arguments",
        "for word; do case $word in\n --job_name=*) job=${word#*=};;\n --task_index=*) ;;\n esac; "
        "done\npython train.py --job_name=$job\n",
        ("job_name", "task_index"),
        files={"train.py": TF1_FLAGS + "print(FLAGS.ps_hosts)\n"},
        entry="run.sh",
    ),
    ProgramText(
        "parameter servers by TF_CONFIG",
        """
import json, os
import tensorflow.compat.v1 as tf
conf = json.loads(os.environ["TF_CONFIG"])
job, index = conf["task"]["type"], conf["task"]["index"]
if job == "ps":
    server.join()
""",
        types=("ps",),
    ),
    ProgramText(
        "variables on parameter servers",
        """
import json, os
import tensorflow.compat.v1 as tf
cluster = tf.train.ClusterSpec(json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"])
with tf.device(tf.train.replica_device_setter(cluster=cluster)):
    step = tf.train.get_or_create_global_step()
""",
        types=("ps",),
    ),
    ProgramText(
        "addresses of parameter servers looked up",
        "import json, os\ncluster = json.loads(os.environ['TF_CONFIG'])['cluster']\n"
        "print(cluster['ps'])\n",
        types=("ps",),
    ),
    ProgramText(
        "coordinator",
        COORDINATOR + 'if resolver.task_type in ("worker", "ps"):\n    serve()\ntrain()\n',
        types=("chief", "ps"),
    ),
    ProgramText(
        "coordinator with an evaluator",
        COORDINATOR
        + """
if resolver.task_type in ("worker", "ps"):
    serve()
elif resolver.task_type == "evaluator":
    tf.keras.utils.SidecarEvaluator().start()
else:
    train()
""",
        types=("chief", "ps", "evaluator"),
    ),
    ProgramText(
        "coordinator with an evaluator that is not written yet",
        COORDINATOR
        + """
match resolver.task_type:
    case "worker" | "ps":
        serve()
if resolver.task_type == "evaluator":
    pass
else:
    train()
""",
        types=("chief", "ps"),
    ),
    ProgramText(
        "a cluster inside one process",
        """
import tensorflow as tf
def cluster(n):
    for i in range(n):
        tf.distribute.Server({}, job_name="worker", task_index=i)
    tf.distribute.Server({}, job_name="ps", task_index=0)
cluster(2)
strategy = tf.distribute.ParameterServerStrategy(None)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
""",
    ),
    ProgramText(
        "workers that mirror each other",
        """
import json, os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
task_type, task_id = strategy.cluster_resolver.task_type, strategy.cluster_resolver.task_id
def is_chief(task_type, task_id, cluster_spec):
    return (
        task_type is None
        or task_type == "chief"
        or (task_type == "worker" and task_id == 0 and "chief" not in cluster_spec)
    )
print(is_chief(task_type, task_id, {}))
""",
    ),
    ProgramText(
        "a chief that leads the session",
        """
import json, os
config = json.loads(os.environ["TF_CONFIG"])
is_chief = config["task"]["type"] == "chief"
print(config["cluster"]["ps"])
""",
        types=("chief", "ps"),
    ),
    ProgramText(
        "worker-0 or a chief",
        """
import json, os
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task["type"] == "chief" or task["index"] == 0, task["type"] == "ps")
""",
        types=("ps",),
    ),
    ProgramText(
        "an estimator",
        "import tensorflow as tf\ntf.estimator.train_and_evaluate(None, None, None)\n",
        types=("chief", "ps", "evaluator"),
    ),
    ProgramText(
        "an estimator whose workers mirror each other",
        "import tensorflow as tf\n"
        "s = tf.distribute.experimental.MultiWorkerMirroredStrategy()\n"
        "c = tf.estimator.RunConfig(train_distribute=s)\n"
        "tf.estimator.train_and_evaluate(c, None, None)\n",
        types=("evaluator",),
    ),
    ProgramText(
        "a function of the user's own that is called train_and_evaluate",
        "class Trainer:\n    def train_and_evaluate(self):\n        return 1\n"
        "def train_and_evaluate():\n    return Trainer().train_and_evaluate()\n"
        "print(train_and_evaluate())\n",
    ),
    ProgramText(
        "a strategy that is only imported, or in a function that nobody calls",
        "from tensorflow.distribute import ParameterServerStrategy\nimport tensorflow as tf\n"
        "def other():\n    return tf.distribute.coordinator.ClusterCoordinator(None)\nprint(1)\n",
    ),
    ProgramText(
        "a hydra-like main",
        "import hydra\n@hydra.main(config_path='.')\ndef run(cfg):\n"
        "    import tensorflow as tf\n    tf.distribute.ParameterServerStrategy(cfg)\nrun()\n",
        types=("ps",),
    ),
)
"""One program for each kind of program that is found in public repositories."""
