"""JupyterHub's configuration on one machine (`make run`) and on Kubernetes (k8s/hub).

TFCLUSTER_HUB chooses between the two: `embedded` (the default) or `on_kubernetes`. Both are modules
of tfcluster_magic/hub. You may set any option of JupyterHub at the end of this file. A page in the
folder `templates/` beside this file replaces TFCluster's page of the same name.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from tfcluster_magic.errors import TFClusterError

c = get_config()  # noqa: F821  defined by JupyterHub's loader
world = os.environ.get("TFCLUSTER_HUB") or "embedded"
try:
    importlib.import_module(f"tfcluster_magic.hub.{world}").configure(c)
except TFClusterError as problem:
    sys.exit(f"The hub does not start: {problem}")
c.JupyterHub.template_paths.insert(0, str(Path(__file__).parent / "templates"))
