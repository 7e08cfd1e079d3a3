"""Tasks without TensorFlow that record their times, to show how fast TFCluster reacts.

The parameter server and worker-1 stay; worker-0 ends after a second. With `--all`, every worker
ends at that time. `<marks>/<task>.end` has the time of the end, `<marks>/<task>.pid` the process
id.
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
