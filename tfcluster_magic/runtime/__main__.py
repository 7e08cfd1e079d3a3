"""Entry point of the runtime: of this folder, or of the zip of this folder in a pod.

`python -S -E runtime.zip task <task.json> <task>` runs a task. `python runtime tf_server` runs the
bare TensorFlow server that TF_CONFIG describes. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["task"]:
        import task

        # Not sys.exit: a thread that hangs on a volume must not delay the exit, and all output is
        # written by now.
        os._exit(task.main(sys.argv[1:]))
    if sys.argv[1:2] == ["tf_server"]:
        import tf_server

        # TensorFlow must not import modules from the runtime's folder.
        del sys.path[0]
        sys.exit(tf_server.main(sys.argv[1:]))
    sys.exit("use: task <task.json> <task>, or tf_server [--server python]")
