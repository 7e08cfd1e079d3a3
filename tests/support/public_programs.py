"""Programs as users write them, each with its expected result: the table of tests/programs.

Each represents a kind of public program and is rewritten for this project. `words` are all
arguments that a user gives to `launch`, which finds out everything else and prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from support.project import ROOT
from tfcluster_magic.spec import Phase

FOLDER = ROOT / "tests" / "programs"


@dataclass(frozen=True)
class PublicProgram:
    """One program of tests/programs, its launch and its expected result."""

    name: str
    words: tuple[str, ...] = ("train.py",)
    tasks: Mapping[str, int] = field(default_factory=lambda: {"worker": 1})
    phase: Phase = Phase.SUCCEEDED
    prints: Mapping[str, str] = field(default_factory=dict)
    """Expected output of tasks, by task."""
    says: tuple[str, ...] = ()
    """Texts in the launch's output, or in the final `status`."""
    step: int | None = None
    """The last step in `status`."""
    is_long: bool = False
    """Whether a shorter program tests the same feature."""
    in_pods: bool = False
    """Whether the tests also launch the program on Kubernetes."""
    is_old: bool = False
    """Whether the program runs on TensorFlow 2.15."""


# Programs that use TensorFlow's strategies take long, and most have `is_long`:
# tests/integration/test_training_modes.py trains the examples in every mode anyway.
PROGRAMS = (
    # -- parameter servers, each worker with its own graph
    PublicProgram(
        "tf1_flags",
        tasks={"ps": 1, "worker": 2},
        prints={"worker-0": "worker 0 is done", "worker-1": "worker 1 is done"},
        says=("takes --ps_hosts", "--ps N overrides it"),
        is_long=True,
        in_pods=True,
    ),
    PublicProgram(
        "tf1_supervisor",
        tasks={"ps": 1, "worker": 2},
        prints={"worker-0": "counted to", "worker-1": "counted to"},
        says=("--log-dir",),
        is_long=True,
    ),
    PublicProgram(
        "tf1_config",
        tasks={"ps": 1, "worker": 2},
        prints={"worker-0": "done", "worker-1": "done"},
        says=("--ps",),
        is_long=True,
        in_pods=True,
    ),
    PublicProgram(
        "tf1_own_hosts",
        tasks={"ps": 1, "worker": 2},
        prints={"worker-0": "done"},
        is_long=True,
    ),
    # -- a coordinator
    PublicProgram(
        "pss_coordinator",
        tasks={"ps": 1, "worker": 2, "chief": 1},
        prints={"chief-0": "Epoch 3/3"},
        says=("1 parameter server, because line 15", "1 chief, because line 16"),
        is_long=True,
        in_pods=True,
    ),
    PublicProgram(
        "pss_fit",
        tasks={"ps": 1, "worker": 2, "chief": 1},
        prints={"chief-0": "loss went down"},
        step=30,
        is_long=True,
    ),
    PublicProgram(
        "estimator",
        ("--chief", "--workers", "1", "--ps", "1", "--evaluator", "train.py"),
        tasks={"ps": 1, "worker": 1, "chief": 1, "evaluator": 1},
        prints={"chief-0": "evaluated chief 0"},
        is_old=True,
    ),
    # -- all workers together
    PublicProgram(
        "mirrored_loop",
        ("--workers", "2", "train.py"),
        tasks={"worker": 2},
        prints={"worker-0": "step 30/30", "worker-1": "step 30/30"},
        step=30,
        is_long=True,
        in_pods=True,
    ),
    PublicProgram(
        "mirrored_keras",
        ("--workers", "2", "train.py"),
        tasks={"worker": 2},
        prints={"worker-0": "saved", "worker-1": "saved"},
        is_long=True,
    ),
    # -- one worker, or independent workers
    PublicProgram("keras3", ("--workers", "1", "train.py"), prints={"worker-0": "Epoch 3/3"}),
    PublicProgram(
        "summaries",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "curves are in"},
        step=30,
        in_pods=True,
    ),
    PublicProgram(
        "resumed",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "stands at 20"},
        step=20,
        is_long=True,
    ),
    PublicProgram("bar", ("--workers", "1", "train.py"), step=40),
    PublicProgram(
        "sidecar",
        ("--chief", "--workers", "0", "--evaluator", "train.py"),
        tasks={"chief": 1, "evaluator": 1},
        prints={"chief-0": "epoch 3/3", "evaluator-0": "evaluated 3.txt"},
        in_pods=True,
    ),
    # -- ports of their own
    PublicProgram(
        "tracker",
        ("--workers", "2", "train.py"),
        tasks={"worker": 2},
        prints={"worker-0": "met worker 1", "worker-1": "together"},
        in_pods=True,
    ),
    PublicProgram(
        "store",
        ("--workers", "3", "train.py"),
        tasks={"worker": 3},
        prints={"worker-1": "welcome", "worker-2": "welcome"},
        is_long=True,
    ),
    # -- command lines
    PublicProgram(
        "absl_flags",
        ("--workers", "2", "train.py"),
        tasks={"worker": 2},
        prints={"worker-1": "I am worker-1 of 2"},
    ),
    PublicProgram(
        "click_command",
        ("--workers", "1", "train.py", "--", "fit", "--epochs", "3"),
        prints={"worker-0": "logged in runs"},
    ),
    PublicProgram(
        "argparse_default",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "read 3 rows"},
    ),
    PublicProgram(
        "helper_with_main",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "epoch 1 batches 4"},
        is_long=True,
    ),
    PublicProgram(
        "overrides",
        ("--workers", "1", "train.py", "--", "train.steps=6", "train.rate=0.2"),
        prints={"worker-0": "rate was 0.2"},
        step=6,
    ),
    PublicProgram(
        "getopt_short",
        ("--workers", "1", "train.py", "--", "-n", "4"),
        prints={"worker-0": "does 4"},
        is_long=True,
    ),
    PublicProgram(
        "no_arguments",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "trained"},
        is_long=True,
    ),
    # -- more than one file
    PublicProgram(
        "shell",
        ("--workers", "1", ".", "--", "--times", "2"),
        prints={"worker-0": "sum 56"},
    ),
    PublicProgram(
        "shell_pipe",
        ("--workers", "1", "."),
        says=("the loss is not a number",),
    ),
    PublicProgram(
        "package",
        ("--workers", "1", "."),
        prints={"worker-0": "2 epochs of width 12"},
        is_long=True,
    ),
    PublicProgram(
        "beside",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "vocabulary of 4"},
    ),
    PublicProgram(
        "pool",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "evaluated by x"},
        is_long=True,
    ),
    # -- failures
    PublicProgram(
        "thread",
        ("--workers", "1", "train.py"),
        prints={"worker-0": "trained on 1"},
        says=("records-00001 is truncated",),
    ),
    PublicProgram(
        "diverges",
        ("--workers", "1", "train.py"),
        phase=Phase.FAILED,
        says=("loss became 0 at step 7", "train.py", "line 12"),
        in_pods=True,
    ),
)
CELL = """\
import os

for step in range(1, 6):
    print(f"step {step}/5 of {os.environ['TFCLUSTER_TASK']}")
"""
