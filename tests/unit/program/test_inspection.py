"""Detection of programs that open their task's port, by their text."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs import write

from tfcluster_magic.program import snapshot


@pytest.mark.parametrize(
    ("text", "serves"),
    [
        ("server = tf.train.Server(spec)", True),
        ("server = tf.compat.v1.train.Server(spec)", True),
        ("server = tf.distribute.Server(spec)", True),
        ("from tensorflow.distribute import Server", True),
        ("s = tf.distribute.ParameterServerStrategy(r)", True),
        ("s = tf.distribute.experimental.ParameterServerStrategy(r)", True),
        ("from tensorflow.distribute import MultiWorkerMirroredStrategy", True),
        ("tf.estimator.train_and_evaluate(e, t, v)", True),
        ("from tensorflow.estimator import train_and_evaluate", True),
        ("trainer.train_and_evaluate()", False),
        ("p.add_argument('--ps_hosts')", False),
        ("s = tf.distribute.MirroredStrategy()", False),
        ("# MultiWorkerMirroredStrategy\ns = http.Server()", False),
        ("r = tf.distribute.cluster_resolver.TFConfigClusterResolver()", False),
        ("print('use tf.distribute.Server')", False),
    ],
)
def test_serving_is_what_opens_the_tasks_port(
    text: str, serves: bool, here: Path, workspace: Path
) -> None:
    """Only programs with TensorFlow's servers or its two multi-machine strategies count as opening
    their port.
    """
    write(here, {"a.py": text + "\n"})
    program, _ = snapshot("a.py", workspace=workspace, cwd=here)
    assert program.serves is serves
