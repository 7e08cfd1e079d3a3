"""Write k8s/crds/, the custom resources that an administrator applies: `python tools/crd.py`.

The script also writes the variables of the admission policy for records (k8s/base/admission.yaml).
Both are generated from the models. A test checks that they are current.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import yaml

from tfcluster_magic.kube.objects.crd import crd_object, policy_variables
from tfcluster_magic.kube.objects.schedule_crd import schedule_crd

K8S = Path(__file__).resolve().parent.parent / "k8s"
FILES = {
    K8S / "crds" / "tfclusters.tfcluster.dev.yaml": crd_object,
    K8S / "crds" / "tfclusterschedules.tfcluster.dev.yaml": schedule_crd,
}
POLICY = K8S / "base" / "admission.yaml"
MADE = re.compile(
    r"(?<=, down to the next empty comment\.\n).*?(?=^    #$)", re.MULTILINE | re.DOTALL
)
HEAD = "# Made by `make docs` from {of}: change the models, not this file.\n"


def texts() -> dict[Path, str]:
    """Return the generated custom resource definitions, by file."""
    found = {}
    for file, made in FILES.items():
        of = "tfcluster_magic/spec" if made is crd_object else "tfcluster_magic/schedules"
        content: str = yaml.safe_dump(made(), sort_keys=False, width=100, allow_unicode=True)
        found[file] = HEAD.format(of=of) + content
    return found


def policy() -> str:
    """Return the text of k8s/base/admission.yaml with the generated variables in its policies."""
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
    for path, content in texts().items():
        path.write_text(content, "utf-8")
    POLICY.write_text(policy(), "utf-8")
