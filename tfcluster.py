"""Report how far a program is: `import tfcluster; tfcluster.progress(step, total, loss=0.3)`.

Outside a run, this module lets the program run too: its functions do nothing. In a task,
tfcluster_magic/runtime/site/tfcluster.py is first on the path.
"""

from tfcluster_magic.runtime.site.tfcluster import progress

__all__ = ["progress"]
