"""Chaos plans for runs on Kubernetes: the actions, their frequency, and the program. The program
reads its commands from a file in its container's /tmp, which the test writes from outside.
"""

from __future__ import annotations

from support.chaos.plan import OBEYS

WORD = "tmp/word"
"""The path, below the root of a task's container, of the file that a program reads commands
from.
"""
LINES = 40
"""The number of lines that a successful program prints; all of them must be in /log."""
MEMBER = (
    f"""
import os, signal, subprocess, sys, time

uid, task = os.environ["TFCLUSTER_RUN_UID"], os.environ["TFCLUSTER_TASK"]
print("up", uid, task, flush=True)
done = ""
while True:
    time.sleep(0.2)
    try:
        number, word = open("/{WORD}").read().split()
    except (OSError, ValueError):
        continue
    if number == done:
        continue
    done = number
    if word == "finish":
        for line in range({LINES}):
            print("end", uid, task, line)
        sys.stdout.flush()
"""
    + OBEYS
)

SERVERS = (
    "kube-apiserver",
    "etcd",
    "kubelet",
    "kube-controller-manager",
    "kube-scheduler",
    "coredns",
    "containerd",
    "operator",
    "brick",
    "kubelet-2",
    "containerd-2",
    "kube-proxy-2",
    "node-2",
)
"""Servers that are killed and stay down for some steps, one at a time."""
WEIGHTS = {
    "launch": 14,
    "rerun": 5,
    "stop": 5,
    "delete": 5,
    "at_once": 3,
    "tell": 14,
    "finish": 12,
    **{f"lose_{server.replace('-', '_')}": 1 for server in SERVERS},
    "lose_operator": 4,
    "cut": 4,
    "kill_task": 4,
    "kill_program": 4,
    "kill_shim": 3,
    "delete_pod": 4,
    "force_pod": 3,
    "delete_job": 3,
    "meddle": 4,
    "die_launching": 5,
    "die_stopping": 3,
    "die_deleting": 3,
    "die_reading": 3,
    "notebook": 4,
    "kill_cell": 3,
    "delete_notebook": 3,
}
"""The weights of actions: servers die rarely, so that runs can progress in between."""
EVENLY = {action: max(3, weight // 2) for action, weight in WEIGHTS.items()}
"""The weights of actions in a plan of few steps: frequent actions weigh less, and rare ones at
least 3.
"""
ON_TASKS = {
    *("tell", "finish", "stop", "kill_task", "kill_program", "kill_shim", "delete_pod"),
    *("force_pod", "delete_job", "meddle", "die_stopping", "die_reading"),
}
"""Actions that need tasks; a step with such an action launches a run if there are none."""
