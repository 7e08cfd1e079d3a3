"""The folder of a Lab in the browser tests: small programs, and notebooks on demand.

Each program does one thing and prints texts for which a test can wait. The programs start at once,
without TensorFlow; real trainings are in `examples/`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

EVENT_WRITER = Path(__file__).parents[1] / "event_writer.py"
EXAMPLES = Path(__file__).parents[3] / "examples"

HELLO = 'import os\nprint("hello from", os.environ["TFCLUSTER_TASK"], flush=True)\n'
SLEEP = 'import time\nprint("up", flush=True)\ntime.sleep(600)\n'
FAIL = 'print("before the fall", flush=True)\nraise ValueError("the data set is empty")\n'
TALK = """\
import sys

lines = int(sys.argv[1])
for number in range(lines):
    print("line", number, "of", lines)
"""
ODD = """\
import time

print("<script>window.__pwned = 1</script><img src=x onerror='window.__pwned = 2'>")
print("\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 bell \\x07 null \\x00 back\\x08 end")
print("\\u202egnp.exe", "zero\\u200bwidth", "<b>bold</b> &amp;", flush=True)
time.sleep(600)
"""
TRAIN = """\
import os
import sys
import time
from pathlib import Path

from event_writer import event, event_file, version

steps, pause = int(sys.argv[-2]), float(sys.argv[-1])
if os.environ["TFCLUSTER_TASK"] == "worker-0":
    now = time.time()
    file = event_file(Path(os.environ["TFCLUSTER_OUTPUT_DIR"]), created=int(now))
    file.write_bytes(version(now))
    with file.open("ab") as out:
        for step in range(1, steps + 1):
            out.write(event(step, {"loss": 2.0 / (1 + step / 20)}, wall=time.time()))
            out.flush()
            print(f"step {step} of {steps}", flush=True)
            time.sleep(pause)
else:
    time.sleep(steps * pause)
"""
PROGRAMS = {
    "hello.py": HELLO,
    "sleep.py": SLEEP,
    "fail.py": FAIL,
    "talk.py": TALK,
    "odd.py": ODD,
    "train.py": TRAIN,
}


def prepare(root: Path) -> None:
    """Create the folder `root` with the programs and a copy of the examples."""
    root.mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (root / name).write_text(text)
    shutil.copy(EVENT_WRITER, root)
    leave = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    shutil.copytree(EXAMPLES, root / "examples", ignore=leave)


def notebook(
    path: Path,
    cells: Sequence[str],
    outputs: Sequence[Sequence[object]] = (),
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Write a notebook of code cells; the n-th item of `outputs` has the outputs of the n-th cell.

    Pass the `metadata` of a notebook saved by JupyterLab, so that JupyterLab does not modify the
    new notebook on opening it.
    """
    written = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {},
            "source": source,
            "execution_count": None,
            "outputs": [*outputs[number]] if number < len(outputs) else [],
        }
        for number, source in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    path.write_text(
        json.dumps(
            {
                "cells": written,
                "metadata": metadata or {"kernelspec": kernel, "language_info": {"name": "python"}},
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        )
    )
