"""Tasks without TensorFlow that record their times, to show how fast TFCluster reacts.

Worker-0 ends after a second, and with `--all` worker-1 ends then, too; all other tasks run until
they are stopped. Each task writes its process id to `<marks>/<task>.pid`; a task that ends writes
the time of its end to `<marks>/<task>.end`.
"""

import os
import sys
import time

marks, everybody = sys.argv[1], "--all" in sys.argv
task = os.environ["TFCLUSTER_TASK"]
with open(os.path.join(marks, f"{task}.pid"), "w") as file:
    file.write(str(os.getpid()))
if task == "worker-0" or (everybody and task.startswith("worker")):
    time.sleep(1)
    with open(os.path.join(marks, f"{task}.end"), "w") as file:
        file.write(str(time.time()))
    os._exit(0)
while True:
    time.sleep(3600)
