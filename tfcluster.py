"""Report how far a program is: `import tfcluster; tfcluster.progress(step, total, loss=0.3)`.

Where this package is installed, so that a program runs also outside of a run, where a call does
nothing. A task has the module itself first on its path: tfcluster_magic/runtime/site/tfcluster.py.
"""

from tfcluster_magic.runtime.site.tfcluster import progress

__all__ = ["progress"]
