"""The images of `images/`, built here as users build them, and pulled by the node's containerd."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kubenode import images, paths, registry
from kubenode.images import Image
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.kube.workloads import USER, pod

pytestmark = pytest.mark.needs("registry", "node-inside")

Pushed = Callable[[str], Image]
LARGEST = {"notebook": 2200, "hub": 600, "operator": 350, "proxy": 320}  # MB
PROGRAMS = {
    "notebook": ("jupyter-lab", "jupyterhub-singleuser", "tensorboard", "tfcluster"),
    "hub": ("jupyterhub", "tfcluster"),
    "operator": ("tfcluster",),
    "proxy": ("configurable-http-proxy",),
}
UNCOMPILED = """
import importlib.util, pathlib, sys
for name in sys.argv[1:]:
    for source in pathlib.Path(importlib.util.find_spec(name).origin).parent.rglob("*.py"):
        compiled = pathlib.Path(importlib.util.cache_from_source(source))
        header = compiled.read_bytes()[8:12] if compiled.exists() else b""
        if header != int(source.stat().st_mtime).to_bytes(4, "little"):
            print(source)
print("looked")
"""
PROJECT = """
mkdir /tmp/project && cd /tmp/project && echo 'WORDS = "hello from home"' >made_here.py &&
echo 'from setuptools import setup; setup(name="made-here", py_modules=["made_here"])' >setup.py &&
pip install --quiet --user --no-index --no-build-isolation . && cd / &&
python -c 'import made_here; print(made_here.__file__, made_here.WORDS)'
"""


@pytest.fixture
def pushed(cluster: UnderTest) -> Pushed:
    """A function that builds an image of this clone and pushes it to the node's registry."""

    def push(name: str) -> Image:
        assert cluster.own
        image = images.build(name)
        registry.push(image, cluster.own.first)
        return image

    return push


@pytest.mark.parametrize("name", images.PRODUCT)
def test_an_image_is_small_and_its_programs_start(pushed: Pushed, kube: Kubectl, name: str) -> None:
    """Each image keeps its size limit, runs as uid 1000 by default, and its programs start."""
    image = pushed(name)
    assert images.megabytes(image) <= LARGEST[name]
    started = " && ".join(f"{program} --version" for program in PROGRAMS[name])
    asking = pod(name, image.reference, "sh", "-c", f"id -u && {started}")
    for field in ("runAsUser", "runAsGroup"):
        del asking["spec"]["securityContext"][field]  # run as the image's own user
    kube.apply(asking)
    ended = kube.wait("pod", name, _ended, "it has ended", seconds=300)
    assert ended["status"]["phase"] == "Succeeded", kube.logs(name)
    assert kube.logs(name).split()[0] == str(USER)


def test_a_notebook_is_compiled_and_takes_packages(pushed: Pushed, kube: Kubectl) -> None:
    """Every module of TensorFlow, Keras, JupyterLab and this package has valid bytecode. `pip
    install --user` in a notebook installs a package below the home folder, and Python imports it.
    """
    kube.apply(pod("notebook", pushed("notebook").reference))
    kube.running("notebook", seconds=300)
    packages = ("tensorflow", "tf_keras", "jupyterlab", "sklearn", "tfcluster_magic")
    said = kube.exec("notebook", "python", "-c", UNCOMPILED, *packages, seconds=120)
    assert said == "looked\n"
    said = kube.exec("notebook", "sh", "-c", PROJECT, seconds=120)
    assert said.startswith("/home/jovyan/.local/lib/python3")
    assert said.endswith("made_here.py hello from home\n")


@pytest.mark.long  # it builds an image twice; the tests above build it once
def test_a_change_of_code_changes_one_layer(
    pushed: Pushed,
    kube: Kubectl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A changed source changes only the last layer of an image, and pods run the new code."""
    before = pushed("operator")
    _copy_of_the_clone(tmp_path)
    changed = tmp_path / "tfcluster_magic" / "spec" / "names.py"
    changed.write_text(changed.read_text() + "\nCHANGED = 'by a test'\n")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    after = pushed("operator")
    assert images.layers(after)[:-1] == images.layers(before)[:-1]
    assert images.layers(after)[-1] != images.layers(before)[-1]
    show = "from tfcluster_magic.spec import names; print(names.CHANGED)"
    kube.apply(pod("changed", after.reference, "python", "-c", show))
    kube.wait("pod", "changed", _ended, "it has ended")
    assert kube.logs("changed") == "by a test\n"


def test_nothing_of_this_machine_is_in_an_image(pushed: Pushed, kube: Kubectl) -> None:
    """A build's pip settings and proxies do not end up in the image."""
    kube.apply(pod("plain", pushed("operator").reference))
    kube.running("plain")
    assert not kube.succeeds("plain", "test", "-e", "/etc/pip.conf")
    said = kube.exec("plain", "python", "-c", "import json, os; print(json.dumps({**os.environ}))")
    found = [key for key in json.loads(said) if "PROXY" in key.upper() or key.startswith("PIP_")]
    assert sorted(found) == [
        "PIP_BREAK_SYSTEM_PACKAGES",
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "PIP_ROOT_USER_ACTION",
    ]


def _ended(found: Object) -> bool:
    return found["status"]["phase"] in {"Succeeded", "Failed"}


def _copy_of_the_clone(folder: Path) -> None:
    """Copy the files that images are built from, without build or test outputs."""
    for file in {file for name in images.PRODUCT for file in images.contents(name)}:
        if file != "Dockerfile":
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(paths.ROOT / file, folder / file)
    shutil.copytree(paths.ROOT / "images", folder / "images")
