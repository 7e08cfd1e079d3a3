"""Commands of a page of docs/, run as a user types them.

They run in one shell, in the order of the page. A word to replace must occur on the page. The first
failing command fails the test.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kubenode import paths

if TYPE_CHECKING:
    from support.kube.kubectl import Kubectl


def commands(page: str, heading: str) -> list[str]:
    """Return the console blocks below a heading of docs/<page>, each as a shell script."""
    text = (paths.ROOT / "docs" / page).read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = [each.split("\n```", 1)[0] for each in section.split("```console\n")[1:]]
    return [_typed(block) for block in blocks]


def run(text: str, kubectl: Kubectl, folder: Path, instead: Mapping[str, str]) -> str:
    """Run the script in `folder` at the root of a clone; return its output. `instead` maps words of
    the page to those of the test's cluster.
    """
    for word, own in instead.items():
        assert word in text, f"the page does not say {word!r} any more:\n{text}"
        text = text.replace(word, own)
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    if not (program := programs / "kubectl").exists():
        program.symlink_to(kubectl.program)
    if not (folder / "k8s").exists():
        (folder / "k8s").symlink_to(paths.ROOT / "k8s")
    environment = {
        **os.environ,
        "KUBECONFIG": kubectl.kubeconfig,
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _typed(block: str) -> str:
    return "\n".join(line.removeprefix("$ ") for line in block.splitlines())
