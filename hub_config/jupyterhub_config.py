"""JupyterHub's configuration, in both worlds: this machine (`make run`) and Kubernetes (k8s/hub).

It only chooses: what is configured stands in tfcluster_magic/hub. TFCLUSTER_HUB is `embedded`
without a value. What comes after the choice is yours: any setting of JupyterHub may follow, and
pages in `templates/` beside this file are shown in place of ours of the same name.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from tfcluster_magic.errors import TFClusterError

c = get_config()  # noqa: F821  given by the loader
world = os.environ.get("TFCLUSTER_HUB") or "embedded"
try:
    importlib.import_module(f"tfcluster_magic.hub.{world}").configure(c)
except TFClusterError as problem:
    sys.exit(f"The hub does not start: {problem}")
c.JupyterHub.template_paths.insert(0, str(Path(__file__).parent / "templates"))
