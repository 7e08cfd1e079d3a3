"""Progress reports of a program: `import tfcluster; tfcluster.progress(step, total, loss=0.3)`.

With this module, the same program also runs outside of a run, where its functions do nothing. In a
task, tfcluster_magic/runtime/site/tfcluster.py comes first on the path.
"""

from tfcluster_magic.runtime.site.tfcluster import progress

__all__ = ["progress"]
