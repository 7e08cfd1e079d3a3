"""What a program says about the flags it takes and the port it opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs import take, write

from tfcluster_magic.program import snapshot, uses_parameter_servers


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (
            "tf.app.flags.DEFINE_string('ps_hosts', '', ''); print(FLAGS.job_name)\n"  # noqa: ISC004
            "tf.app.flags.DEFINE_integer(name='task_index', default=0)\n",
            ("ps_hosts", "job_name", "task_index"),
        ),
        ("p.add_argument('--data_dir')\np.add_argument('--log_path')\n", ("data_dir", "log_path")),
        ('"""Usage: train.py --worker_hosts=HOSTS"""\n', ("worker_hosts",)),
        ("getopt.getopt(a, '', ['job_name=', 'data_dir='])\n", ("job_name", "data_dir")),
        ("data_dir = os.environ['TFCLUSTER_DATA_DIR']\nc['log_path']\n# --ps_hosts\n", ()),
        ("p.add_argument('--data_directory')\nx = '--log_path_2'\n", ()),
    ],
)
def test_flags_are_those_that_the_program_takes(
    text: str, flags: tuple[str, ...], here: Path, workspace: Path
) -> None:
    """A program gets the address flags that it defines, and none for a mere variable or comment."""
    write(here / "job", {"main.py": f"if 0:\n    pass\n{text}", "README.md": "`--task_index`"})
    program, _ = snapshot("job", workspace=workspace, cwd=here)
    assert program.flags == flags


def test_flags_of_a_script(here: Path, workspace: Path) -> None:
    """A shell script takes the flags it names outside comments."""
    write(here, {"a.sh": "# --data_dir\ncase $1 in --job_name=*) echo yes;; esac\n"})
    assert take("a.sh", here, workspace).flags == ("job_name",)


@pytest.mark.parametrize(
    ("text", "serves", "ps"),
    [
        ("server = tf.train.Server(spec)", True, False),
        ("server = tf.compat.v1.train.Server(spec)", True, False),
        ("server = tf.distribute.Server(spec)", True, False),
        ("from tensorflow.distribute import Server", True, False),
        ("s = tf.distribute.ParameterServerStrategy(r)", True, True),
        ("s = tf.distribute.experimental.ParameterServerStrategy(r)", True, True),
        ("from tensorflow.distribute import MultiWorkerMirroredStrategy", True, False),
        ("tf.estimator.train_and_evaluate(e, t, v)", True, False),
        ("p.add_argument('--ps_hosts')", False, True),
        ("s = tf.distribute.MirroredStrategy()", False, False),
        ("# MultiWorkerMirroredStrategy\ns = http.Server()", False, False),
        ("r = tf.distribute.cluster_resolver.TFConfigClusterResolver()", False, False),
        ("print('use tf.distribute.Server')", False, False),
    ],
)
def test_serving_is_what_opens_the_tasks_port(
    text: str, serves: bool, ps: bool, here: Path, workspace: Path
) -> None:
    """Only TensorFlow's servers and its two multi-machine strategies make a program serve."""
    write(here, {"a.py": text + "\n"})
    program, _ = snapshot("a.py", workspace=workspace, cwd=here)
    assert (program.serves, uses_parameter_servers(program, workspace)) == (serves, ps)
