"""No TensorFlow: tasks that note their times, to see how fast TFCluster notices.

A parameter server and worker-1 stay, worker-0 ends after a second; with `--all` every worker does.
Ends are noted in `<marks>/<task>.end`, the process itself in `<marks>/<task>.pid`.
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
