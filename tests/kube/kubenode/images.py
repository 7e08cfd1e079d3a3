"""The images that pods of the tests run: each is built once for a content, which names its tag.

`build` returns at once when nothing that goes into an image has changed. The product's images come
from the Dockerfiles that users build, on a Debian tree in the place of a public Python image.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import build as servers
from . import debian, paths
from .buildah import (
    CERTIFICATES,
    NPM_CONFIGURATION,
    PIP_CONFIGURATION,
    buildah,
    certificates,
    storage,
)
from .commands import locked, run, say
from .errors import NodeError

REGISTRY = "registry:5000"
PRODUCT = ("notebook", "hub", "operator", "proxy")
GO = ("local-path-provisioner", "pause")  # one Go program each
NAMES = ("busybox", *GO, *PRODUCT)
CONTEXT = "/context"
FILES = (  # what .dockerignore lets into the context; requirements are named by the image
    ".dockerignore",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "requirements/build.txt",
    "setup.py",
    "tfcluster.py",
    "tools/build_backend.py",
    "tools/labextension.py",
)
PROXY = (
    ".dockerignore",
    "hub_config/proxy/package-lock.json",
    "hub_config/proxy/package.json",
)
BESIDE = (
    "examples",
    "jupyter-config",
    "labextension",
)  # what the notebook image has beside the package
MADE = {".ipynb_checkpoints", "__pycache__", "node_modules", "lib", ".yarn"}  # no sources


@dataclass(frozen=True)
class Image:
    """An image in buildah's storage."""

    name: str
    tag: str

    @property
    def reference(self) -> str:
        """What a pod's `image` says."""
        return f"{REGISTRY}/{self.name}:{self.tag}"


def build(name: str) -> Image:
    """The image `name` of NAMES with the content of now: built if this content never was.

    Raises:
        NodeError: a step of its Dockerfile failed; the message has its last lines.
    """
    image = Image(name, digest(name))
    built = storage() / "built" / f"{name}-{image.tag}"  # its size; goes with the storage
    if built.exists():
        return image
    with locked(storage() / "building", waiting_for=f"it builds images, {name} comes after"):
        if not built.exists():
            built.parent.mkdir(exist_ok=True)
            began = time.monotonic()
            say(f"building the image {name}: minutes the first time, then seconds")
            buildah(["rm", "--all"])  # what a killed build left
            try:
                make(image)
            except NodeError as error:  # registries of packages fail at times; layers are kept
                say(f"image {name}: failed, and is tried once more. {error}")
                make(image)
            # A line for each name that the same image has, such as an earlier tag.
            size = buildah(["images", "--format", "{{.Size}}", image.reference]).splitlines()[0]
            say(f"image {name}: {size}, built in {time.monotonic() - began:.0f} s")
            built.write_text(size)
    return image


def megabytes(image: Image) -> float:
    """How large a built image is, unpacked."""
    size, unit = (storage() / "built" / f"{image.name}-{image.tag}").read_text().split()
    return float(size) * {"kB": 1e-3, "MB": 1, "GB": 1e3}[unit]


def layers(image: Image) -> list[str]:
    """The digests of a built image's layers, the lowest first."""
    found = buildah(["inspect", "--type=image", image.reference])
    digests: list[str] = json.loads(found)["OCIv1"]["rootfs"]["diff_ids"]
    return digests


def make(image: Image) -> None:
    """Build an image from its Dockerfile, every layer at most once."""
    words = ["bud", "--isolation=chroot", "--network=host", "--layers", f"--tag={image.reference}"]
    folder, dockerfile = sources(image.name)
    inside = f"/run/{image.name}.Dockerfile"
    binds = {folder: CONTEXT, dockerfile: inside}
    if image.name == "notebook":  # here, where Node and the packages are kept from build to build
        run([sys.executable, paths.ROOT / "tools" / "labextension.py", "build"])
    if image.name in PRODUCT:
        words += [f"--build-arg=BASE_IMAGE={base()}", f"--secret=id=pip,src={PIP_CONFIGURATION}"]
        words += [f"--secret=id=npm,src={NPM_CONFIGURATION}"]
        if certificates():
            words += [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"]
    buildah([*words, f"--file={inside}", CONTEXT], binds=binds)


def base() -> str:
    """The image that stands for a public Python image: Debian's Python, as it was installed."""
    tree = debian.tree("python")
    name, _, tag = tree.name.rpartition("-")
    reference = f"localhost/{name}:{tag}"
    done = storage() / "built" / tree.name
    if not done.exists():
        say("committing the base image: about 20 s, once")
        container = buildah(["from", "scratch"]).strip()
        buildah(["add", "--quiet", container, "/tree", "/"], binds={tree: "/tree"})
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        buildah(["config", f"--env=PATH={path}", "--cmd=python3", container])
        buildah(["commit", "--quiet", "--rm", container, reference])
        done.touch()
    return reference


def sources(name: str) -> tuple[Path, Path]:
    """The build context of an image, and its Dockerfile."""
    if name in PRODUCT:
        return paths.ROOT, paths.ROOT / "images" / name / "Dockerfile"
    dockerfile = paths.KUBE / "images" / name / "Dockerfile"
    if name == "busybox":
        return debian.tree("builder") / "usr" / "bin", dockerfile
    if name in GO:
        return servers.binary(name).parent, dockerfile
    raise NodeError(f"There is no image {name!r}. There are: {', '.join(NAMES)}.")


def contents(name: str) -> Mapping[str, Path]:
    """Every file that goes into an image, by the name that its digest counts."""
    folder, dockerfile = sources(name)
    found = {"Dockerfile": dockerfile}
    if name in PRODUCT:
        own = PROXY if name == "proxy" else (*FILES, *package())
        files = [*own, f"requirements/{name}.txt"]
        if name == "notebook":
            files += beside()
        found |= {file: folder / file for file in files}
    else:
        found[name] = folder / name
    return found


def package() -> Iterator[str]:
    """The files of the package, as they are in a fresh clone."""
    built = paths.ROOT / "tfcluster_magic" / "labextension"
    for path in sorted((paths.ROOT / "tfcluster_magic").rglob("*")):
        made = "__pycache__" in path.parts or ".so" in path.suffixes or built in path.parents
        if path.is_file() and not made:
            yield path.relative_to(paths.ROOT).as_posix()


def beside() -> Iterator[str]:
    """The examples, the sources of the JupyterLab extension, and what enables its server."""
    for name in BESIDE:
        for folder, folders, files in os.walk(paths.ROOT / name):
            folders[:] = sorted({*folders} - MADE)
            for file in sorted(files):
                if not file.endswith(".tsbuildinfo"):
                    yield (Path(folder, file)).relative_to(paths.ROOT).as_posix()


def digest(name: str) -> str:
    """A tag that changes with anything that goes into an image."""
    total = hashlib.sha256()
    if name in PRODUCT:
        total.update(debian.tree("python").name.encode())
    for label, path in contents(name).items():
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise NodeError(f"The image {name} needs {path}, which is not there.") from error
        total.update(f"{label} {len(content)} ".encode() + content)
    return total.hexdigest()[:12]
