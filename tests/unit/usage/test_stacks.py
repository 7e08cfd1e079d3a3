"""The lines at which tasks stand, which are found in their stacks."""

from __future__ import annotations

from tfcluster_magic.usage.stacks import ProcessStack, RunStacks, TaskStack, standstills

TENSORFLOW = """Thread 0x1 (most recent call first):
  File "/run/other.py", line 7 in fill
Current thread 0x2 (most recent call first):
  File "/venv/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line 53 in run
  File "/run/train.py", line 12 in step
  File "/run/train.py", line 30 in main
"""
QUEUE = """Thread 0x2 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/run/train.py", line 20 in take
  File "<string>", line 1 in <module>
"""


def test_the_line_of_the_program_is_found() -> None:
    """A task stands at the innermost line of its program in the main thread; the result also says
    whether this line called TensorFlow. Other threads, lines of libraries, and processes without a
    stack do not count.
    """
    stacks = {
        "worker-0": [TENSORFLOW],
        "worker-1": ["", QUEUE],
        "worker-2": [],
        "worker-3": ['Thread 0x2 (most recent call first):\n  File "<string>", line 1 in f\n'],
        "worker-4": ["no stack at all"],
        "worker-5": [f'Thread 0x2 (x):\n  File "/run/train.py", line {"9" * 5000} in f\n'],
    }
    tasks = tuple(
        TaskStack(task, 5.0, 1.0, tuple(ProcessStack(1, "python", text, "") for text in texts))
        for task, texts in stacks.items()
    )
    found = standstills(RunStacks(name="digits-2", tasks=tasks))
    assert {task: tuple(place) for task, place in found.items()} == {
        "worker-0": (5.0, "train.py", 12, "step", True),
        "worker-1": (5.0, "train.py", 20, "take", False),
    }
