"""Write k8s/crds/, the custom resource that an administrator applies: `python tools/crd.py`.

It is generated from the models, as are the variables of the admission policy for records
(k8s/base/admission.yaml). A test checks that both are current.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import yaml

from tfcluster_magic.kube.objects.crd import crd_object, policy_variables

K8S = Path(__file__).resolve().parent.parent / "k8s"
FILE, POLICY = K8S / "crds" / "tfclusters.tfcluster.dev.yaml", K8S / "base" / "admission.yaml"
MADE = re.compile(
    r"(?<=, down to the next empty comment\.\n).*?(?=^    #$)", re.MULTILINE | re.DOTALL
)
HEAD = "# Made by `make docs` from tfcluster_magic/spec: change the models, not this file.\n"


def text() -> str:
    """Return the generated custom resource definition."""
    made: str = yaml.safe_dump(crd_object(), sort_keys=False, width=100, allow_unicode=True)
    return HEAD + made


def policy() -> str:
    """Return the policies with their generated variables."""
    made = "".join(
        f"    - name: {name}\n      expression: >-\n{_folded(words)}"
        for name, words in policy_variables().items()
    )
    return MADE.sub(lambda _found: made, POLICY.read_text("utf-8"))


def _folded(words: str) -> str:
    """Wrap an expression into lines that YAML joins with spaces."""
    lines = textwrap.wrap(words, 132, break_long_words=False, break_on_hyphens=False)
    return "".join(f"        {line}\n" for line in lines)


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    POLICY.write_text(policy(), "utf-8")
