"""Write k8s/crds/: the custom resource that an administrator applies. `python tools/crd.py`.

It is made of the models; a test keeps it current.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tfcluster_magic.kube.objects.crd import crd_object

FILE = Path(__file__).resolve().parent.parent / "k8s" / "crds" / "tfclusters.tfcluster.dev.yaml"
HEAD = "# Made by `make docs` from tfcluster_magic/spec: change the models, not this file.\n"


def text() -> str:
    """The definition as it is in the repository."""
    made: str = yaml.safe_dump(crd_object(), sort_keys=False, width=100, allow_unicode=True)
    return HEAD + made


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
