"""Progress reports of a program: `import tfcluster; tfcluster.progress(step, total, loss=0.3)`.

A program that imports this module also runs outside of TFCluster; the functions then do nothing. In
a task, tfcluster_magic/runtime/site is first on the import path, so the task imports the module of
the same name there.
"""

from tfcluster_magic.runtime.site.tfcluster import progress

__all__ = ["progress"]
