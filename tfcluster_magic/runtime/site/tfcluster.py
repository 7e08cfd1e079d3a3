"""Progress reports of a program: `import tfcluster; tfcluster.progress(step, total, loss=0.3)`.

A task always finds this module on its path, even if no package is installed. Outside of a run, a
call does nothing. `progress` accepts any values without raising, never waits for a hanging volume,
and takes a few microseconds. Its values are shown within a second. Standard library only, Python
3.8 syntax.
"""

import atexit
import json
import math
import os
import threading
import time

__all__ = ["progress"]

# Minimum seconds between two writes: the file may be on a network volume.
_PACE = 0.25
# Number of points of the loss curve. Once it has more than twice as many points, every second point
# is dropped.
_POINTS = 60
_FOLDER = ".tfcluster-progress"


def progress(step, total=None, **metrics):
    """Report that `step` of `total` steps are done.

    Args:
        step: steps done so far; a number, or a tensor or array of one element.
        total: the total number of steps, if known.
        metrics: figures to show, such as `loss=0.3, accuracy=0.9`. `epoch=2` is shown as the epoch.
    """
    _REPORT.note(step, total, metrics)


def _number(value):
    """Return a number, or a tensor or array of one element, as a float; None for anything else."""
    try:
        return float(value)
    except Exception:
        return None


class _Report:
    """The arguments of the newest call of `progress`, and the file in the run's folder that has
    them.
    """

    def __init__(self):
        folder, task = os.environ.get("TFCLUSTER_OUTPUT_DIR"), os.environ.get("TFCLUSTER_TASK")
        self.path = os.path.join(folder, _FOLDER, task + ".json") if folder and task else ""
        self.points = []
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self):
        """Reset the thread and locks after a fork, because the child has no copy of the thread."""
        self.newest = None
        self.is_followed = False
        self.wanted = threading.Event()
        self.lock, self.writing = threading.Lock(), threading.Lock()

    def note(self, step, total, metrics):
        """Keep the arguments of a call of `progress` in memory. A thread writes them to the file,
        so that a hanging volume does not delay the program.
        """
        if not self.path:
            return
        with self.lock:
            self.newest = (time.time(), step, total, metrics)
            begins, self.is_followed = not self.is_followed, True
        if begins:
            threading.Thread(target=self.follow, name="tfcluster", daemon=True).start()
            atexit.register(self.finish)
        self.wanted.set()

    def follow(self):
        """Run in a thread: write the arguments of the newest call after each call, at most once in
        `_PACE` seconds.
        """
        while True:
            self.wanted.wait()
            self.wanted.clear()
            self.write()
            time.sleep(_PACE)

    def finish(self):
        """Write the arguments of the last call when the interpreter ends. Wait at most two seconds,
        because the volume may hang.
        """
        last = threading.Thread(target=self.write, daemon=True)
        last.start()
        last.join(2.0)

    def write(self):
        """Write the arguments of the newest call to the file, unless they have been written
        already.
        """
        with self.writing:
            with self.lock:
                newest, self.newest = self.newest, None
            if newest is None:
                return
            try:
                self.replace(self.content(*newest))
            except Exception:
                # The disk is full, or the volume is missing. The error is ignored, because training
                # matters more than its progress reports.
                pass

    def content(self, at, step, total, metrics):
        """Return the content of the file, to be written as JSON; None if `step` is no number."""
        count, most = _number(step), _number(total)
        if count is None or not math.isfinite(count):
            return None
        found = {str(name): _number(value) for name, value in list(metrics.items())[:32]}
        figures = {name: value for name, value in found.items() if value is not None}
        if self.points and count < self.points[-1][1]:
            self.points = [point for point in self.points if point[1] < count]
        loss = figures.get("loss")
        known = loss is not None and math.isfinite(loss)
        self.points.append((at, int(count), loss if known else None))
        if len(self.points) > 2 * _POINTS:
            self.points = self.points[::2] + self.points[-1:]
        return {
            "version": 1,
            "at": at,
            "step": int(count),
            "total": int(most) if most is not None and math.isfinite(most) and most > 0 else None,
            "metrics": {name: repr(value) for name, value in figures.items()},
            "points": self.points,
        }

    def replace(self, content):
        """Replace the file by one with `content`, so that readers never see a partial file."""
        if content is None:
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        partial = f"{self.path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(partial, self.path)


_REPORT = _Report()
