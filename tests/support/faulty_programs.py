"""Programs with a fault, and the message for each; `test_faults.py` runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from support.real_runs import EXAMPLES
from tfcluster_magic.spec import Reason

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"

IS = "import os\ntask = os.environ['TFCLUSTER_TASK']\nattempt = os.environ['TFCLUSTER_ATTEMPT']\n"
HANGS = "import time\ntime.sleep(600)\n"
ON_WORKER = f"{IS}if not task.startswith('worker'):\n    import time; time.sleep(600)\n"

# worker-1 serves and fails; the others wait at its address, and report its loss as gRPC does.
FOLLOWED = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["worker"][1].split(":")
if config["task"] == {"type": "worker", "index": 1}:
    listener = socket.create_server((host, int(port)), reuse_port=True)
    peers = [listener.accept()[0] for _ in range(2)]
    raise ValueError("Input 0 of layer dense is incompatible: expected axis -1 to be 64, found 63")
while True:
    try:
        peer = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        pass
peer.recv(1)
raise RuntimeError("UNAVAILABLE: failed to connect to all addresses: Socket closed")
"""

# ps-0 ends although a connected worker still needs it.
PS_LEAVES = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["ps"][0].split(":")
if config["task"]["type"] == "ps":
    peer, _ = socket.create_server((host, int(port)), reuse_port=True).accept()
    print("nothing more to do")
    raise SystemExit(0)
while True:
    try:
        peer = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        pass
peer.recv(1)
raise RuntimeError("UnavailableError: Connection reset by peer")
"""

PORT_TAKEN = """
import socket
taken = socket.create_server(("127.0.0.1", 0))
socket.create_server(taken.getsockname())
"""
TENSORFLOW_PORT_TAKEN = """
import socket
import tensorflow.compat.v1 as tf
taken = socket.create_server(("127.0.0.1", 0))
cluster = {"worker": ["127.0.0.1:%d" % taken.getsockname()[1]]}
tf.train.Server(cluster, job_name="worker", task_index=0)
"""

EATS = """
held = bytearray(400 << 20)
held[::4096] = b"x" * len(held[::4096])
"""
TENSORFLOW_EATS = """
import tensorflow as tf
print("allocating", flush=True)
held = [tf.random.uniform([64 << 20]) for _ in range(100)]
"""
DIES_AT_EPOCH = """
class Fault(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and os.environ["TFCLUSTER_TASK"] == "worker-1":
            raise ValueError("a broken record in shard 1")
"""


def mwms_that_fails() -> dict[str, str]:
    """Return the example with a fault in the second worker."""
    text = (EXAMPLES / "multi_worker_mirrored.py").read_text()
    callback = "callbacks = ["
    text = text.replace("STEPS_PER_EPOCH = 30", f"STEPS_PER_EPOCH = 5\n{DIES_AT_EPOCH}")
    text = text.replace(callback, f"{callback}Fault(), ")
    files = {"train.py": text, "digits.py": (EXAMPLES / "digits.py").read_text()}
    return {**files, "run.sh": 'exec python3 train.py "$@"\n'}


@dataclass(frozen=True)
class Fault:
    """A program with a fault, and its expected message."""

    program: str | Mapping[str, str] | Callable[[], Mapping[str, str]]
    reason: Reason
    culprit: str | None
    says: tuple[str, ...]
    options: Mapping[str, object] = field(default_factory=lambda: {"workers": 1, "ps": 1})
    logged: str = ""


FAULTS = {
    "mwms-fails": Fault(
        mwms_that_fails,
        Reason.PROGRAM_FAILED,
        "worker-1",
        ("worker-1 failed with exit code 1", "a broken record in shard 1"),
        {"workers": 2, "ps": 0},
        logged="ValueError: a broken record in shard 1",
    ),
    "out-of-memory": Fault(
        TENSORFLOW_EATS,
        Reason.OOM_KILLED,
        "worker-0",
        (
            "worker-0 ran out of memory at its limit of 1500Mi (used 15",
            "--worker-memory 3000Mi",
        ),
        {"workers": 1, "ps": 0, "worker_memory": "1500Mi"},
        logged="allocating",
    ),
    "tf-port-taken": Fault(
        TENSORFLOW_PORT_TAKEN,
        Reason.PROGRAM_FAILED,
        "worker-0",
        ("worker-0 failed", "asked for a port that is taken", "TF_CONFIG"),
        {"workers": 1, "ps": 0},
        logged="Could not start gRPC server",
    ),
    "program-fails": Fault(
        FOLLOWED,
        Reason.PROGRAM_FAILED,
        "worker-1",
        ("worker-1 failed with exit code 1", "expected axis -1", "chief-0, worker-0 ended after"),
        {"workers": 2, "chief": True, "ps": 0},
        logged="found 63",
    ),
    "ps-exited": Fault(
        PS_LEAVES,
        Reason.PS_EXITED,
        "ps-0",
        ("ps-0 exited with exit code 0", "must call server.join()", "worker-0 ended after it"),
        logged="nothing more to do",
    ),
    "missing-module": Fault(
        f"{ON_WORKER}print('starting')\nimport horovod_of_my_own\n",
        Reason.PROGRAM_FAILED,
        "worker-0",
        ("No module named 'horovod_of_my_own'", "`python -m pip install horovod_of_my_own`"),
        logged="starting",
    ),
    "syntax-error": Fault(
        {"run.sh": "exec python3 main.py\n", "main.py": "print('x'\nimport os\n"},
        Reason.PROGRAM_FAILED,
        "worker-0",
        (
            "worker-0 failed with exit code 1",
            "SyntaxError: '(' was never closed (main.py, line 1)",
        ),
        {"workers": 1, "ps": 0},
        logged='main.py", line 1',
    ),
    "missing-command": Fault(
        {"run.sh": "echo going; exec no-such-trainer --epochs 3\n"},
        Reason.PROGRAM_FAILED,
        "worker-0",
        (
            "worker-0 failed with exit code 127",
            "There is no command no-such-trainer where the tasks run",
        ),
        {"workers": 1, "ps": 0},
        logged="going",
    ),
    "port-taken": Fault(
        f"{ON_WORKER}{PORT_TAKEN}",
        Reason.PROGRAM_FAILED,
        "worker-0",
        ("Address already in use", "asked for a port that is taken"),
        logged="Address already in use",
    ),
    "crash": Fault(
        f"{ON_WORKER}import faulthandler, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
        Reason.PROGRAM_FAILED,
        "worker-0",
        ("worker-0 crashed (SIGSEGV): Segmentation fault (train.py, line ",),
    ),
    "start-timeout": Fault(
        f"{IS}print('loading', flush=True)\nif 0: tf.distribute.Server\n{HANGS}",
        Reason.START_TIMEOUT,
        "worker-0",
        (
            "worker-0, ps-0 did not come up within 2s",
            "did not open its port",
            "tfcluster logs start-timeout-1 worker-0",
        ),
        {"workers": 1, "ps": 1, "start_timeout": 2.0},
        logged="loading",
    ),
    "max-duration": Fault(
        SLEEPS,
        Reason.MAX_DURATION,
        None,
        ("Not finished after 3s (--max-duration)", "worker-0, worker-1 still ran"),
        {"workers": 2, "ps": 0, "max_duration": 3.0},
        logged="up",
    ),
    "no-heals-left": Fault(
        f"{ON_WORKER}print('up', flush=True)\nos.kill(os.getpid(), 9)\n",
        Reason.DISRUPTED,
        "worker-0",
        ("worker-0 was killed from outside (SIGKILL)", "already been restarted 1 time", "--heals"),
        {"workers": 1, "ps": 0, "heals": 1},
        logged="up",
    ),
}
