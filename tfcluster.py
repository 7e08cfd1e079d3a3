"""Progress reports of a program: `import tfcluster; tfcluster.progress(step, total, loss=0.3)`.

A program that imports this module also runs outside of TFCluster; the functions then do nothing.
Tasks do not import this file: they import tfcluster_magic/runtime/site/tfcluster.py, because its
folder is first on their import path.
"""

from tfcluster_magic.runtime.site.tfcluster import progress

__all__ = ["progress"]
