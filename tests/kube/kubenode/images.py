"""Container images of the tests' pods. The tag of an image is the digest of its content, and each
image is built only when its content changes.

`build` returns at once if the image of that tag exists. The product's images are built from the
Dockerfiles for users, on a Debian tree instead of a public Python image.
"""

from __future__ import annotations

import contextlib
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
GO = ("local-path-provisioner", "pause")  # images with a single Go program each
NAMES = ("busybox", *GO, *PRODUCT)
OF_ONE_TEST = ("collector",)  # Go programs whose modules are built only for a long test
# versions of an image that stay in the cache; a hundred would fill 30 GB there and on the nodes
KEPT = 5
CONTEXT = "/context"
FILES = (  # files of the build context besides the package and requirements/<image>.txt
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
)  # folders that the notebook image contains in addition to the package
MADE = {".ipynb_checkpoints", "__pycache__", "node_modules", "lib", ".yarn"}  # generated files


@dataclass(frozen=True)
class Image:
    """An image in buildah's storage."""

    name: str
    tag: str

    @property
    def reference(self) -> str:
        """The image reference in a pod's spec."""
        return f"{REGISTRY}/{self.name}:{self.tag}"


def build(name: str) -> Image:
    """Return an image of NAMES or OF_ONE_TEST with its current content; build it if the storage
    lacks it.

    Raises:
        NodeError: a step of its Dockerfile failed; the message has the step's last lines.
    """
    image = Image(name, digest(name))
    # This file holds the image's size. It is deleted together with the storage.
    built = storage() / "built" / f"{name}-{image.tag}"
    if built.exists():
        return image
    with locked(storage() / "building", waiting_for=f"it builds images, {name} comes after"):
        if not built.exists():
            built.parent.mkdir(exist_ok=True)
            began = time.monotonic()
            say(f"building the image {name}: minutes the first time, then seconds")
            buildah(["rm", "--all"])  # leftovers of a killed build
            try:
                make(image)
            except NodeError as error:
                # Package registries fail at times, and finished layers are kept: try once more.
                say(f"image {name}: failed, and is tried once more. {error}")
                make(image)
            # buildah prints a line for each name of the image, such as an earlier tag; all lines
            # have the same size.
            size = buildah(["images", "--format", "{{.Size}}", image.reference]).splitlines()[0]
            say(f"image {name}: {size}, built in {time.monotonic() - began:.0f} s")
            built.write_text(size)
            remove_older(name)
    return image


def remove_older(name: str) -> None:
    """Delete all but the KEPT newest versions of an image; nodes then remove the deleted versions,
    too.
    """
    versions = (storage() / "built").glob(f"{name}-{'[0-9a-f]' * 12}")
    for built in sorted(versions, key=lambda version: version.stat().st_mtime)[:-KEPT]:
        # it was deleted by hand, or is the base of another image
        with contextlib.suppress(NodeError):
            buildah(["rmi", f"{REGISTRY}/{name}:{built.name.removeprefix(f'{name}-')}"])
        built.unlink()


def known() -> set[str]:
    """Return the references of all images that are in buildah's storage."""
    versions = [built.name.rpartition("-") for built in (storage() / "built").iterdir()]
    return {Image(name, tag).reference for name, _, tag in versions}


def megabytes(image: Image) -> float:
    """Return the unpacked size of a built image."""
    size, unit = (storage() / "built" / f"{image.name}-{image.tag}").read_text().split()
    return float(size) * {"kB": 1e-3, "MB": 1, "GB": 1e3}[unit]


def layers(image: Image) -> list[str]:
    """Return the digests of a built image's layers, from the bottom up."""
    found = buildah(["inspect", "--type=image", image.reference])
    digests: list[str] = json.loads(found)["OCIv1"]["rootfs"]["diff_ids"]
    return digests


def make(image: Image) -> None:
    """Build an image from its Dockerfile; each layer is built once."""
    words = ["bud", "--isolation=chroot", "--network=host", "--layers", f"--tag={image.reference}"]
    folder, dockerfile = sources(image.name)
    inside = f"/run/{image.name}.Dockerfile"
    binds = {folder: CONTEXT, dockerfile: inside}
    # The extension is built outside of the image, where Node's packages are cached.
    if image.name == "notebook":
        run([sys.executable, paths.ROOT / "tools" / "labextension.py", "build"])
    if image.name in PRODUCT:
        words += [f"--build-arg=BASE_IMAGE={base()}", f"--secret=id=pip,src={PIP_CONFIGURATION}"]
        words += [f"--secret=id=npm,src={NPM_CONFIGURATION}"]
        if certificates():
            words += [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"]
    buildah([*words, f"--file={inside}", CONTEXT], binds=binds)


def base() -> str:
    """Return the image that replaces a public Python image: Debian's Python, freshly installed."""
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
    """Return the build context and the Dockerfile of an image."""
    if name in PRODUCT:
        return paths.ROOT, paths.ROOT / "images" / name / "Dockerfile"
    dockerfile = paths.KUBE / "images" / name / "Dockerfile"
    if name == "busybox":
        return debian.tree("builder") / "usr" / "bin", dockerfile
    if name in (*GO, *OF_ONE_TEST):
        return servers.binary(name).parent, dockerfile
    raise NodeError(f"There is no image {name!r}. There are: {', '.join(NAMES)}.")


def contents(name: str) -> Mapping[str, Path]:
    """Return the files of an image by name. Names and contents decide the image's digest."""
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
    """Yield the package's source files, without files that a build has made."""
    built = paths.ROOT / "tfcluster_magic" / "labextension"
    for path in sorted((paths.ROOT / "tfcluster_magic").rglob("*")):
        made = "__pycache__" in path.parts or ".so" in path.suffixes or built in path.parents
        if path.is_file() and not made:
            yield path.relative_to(paths.ROOT).as_posix()


def beside() -> Iterator[str]:
    """Yield the examples, the sources of the JupyterLab extension, and the configuration that
    enables it.
    """
    for name in BESIDE:
        for folder, folders, files in os.walk(paths.ROOT / name):
            folders[:] = sorted({*folders} - MADE)
            for file in sorted(files):
                if not file.endswith(".tsbuildinfo"):
                    yield (Path(folder, file)).relative_to(paths.ROOT).as_posix()


def digest(name: str) -> str:
    """Return a tag that changes with any content of an image."""
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
