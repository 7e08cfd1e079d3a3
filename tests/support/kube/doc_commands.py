"""Commands of a page of docs/, run as somebody types them who follows it.

Promises that what runs is what the page says, in one shell, in its order, and that a word which is
put in the place of another stands on the page; the first command that fails fails the test.
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
    """The console blocks below a heading of docs/<page>, each as the text of a shell."""
    text = (paths.ROOT / "docs" / page).read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = [each.split("\n```", 1)[0] for each in section.split("```console\n")[1:]]
    return [_typed(block) for block in blocks]


def run(text: str, kubectl: Kubectl, folder: Path, instead: Mapping[str, str]) -> str:
    """Run the text in `folder` at the root of a clone; what it prints.

    `instead` has words of the page that a site replaces by its own, and the site's.
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
