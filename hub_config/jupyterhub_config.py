"""JupyterHub's configuration on one machine (`make run`) and on Kubernetes (k8s/hub).

This file only chooses between the two by TFCLUSTER_HUB, by default `embedded`; the settings are in
tfcluster_magic/hub. What comes after the choice is yours: you may add any setting of JupyterHub,
and pages in `templates/` beside this file replace ours of the same name.
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
