"""Build steps beyond Python code: the loopback guard and the JupyterLab extension.

Processes of TensorFlow preload the guard, so that their servers listen on loopback only. It is a
plain shared library, not a Python extension, so each platform needs only one wheel,
`py3-none-<platform>`, which works for every Python. Outside Linux there is no guard and the wheel
is `py3-none-any`. The extension is installed where JupyterLab and the Jupyter server look for
extensions, so the wheel enables both. All other settings are in pyproject.toml.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tools"))  # holds build_backend

from build_backend import ZIG, find_compiler  # noqa: E402

import labextension  # noqa: E402  found by the line above

RUNTIME = Path("tfcluster_magic", "runtime")
SOURCE = RUNTIME / "loopback_guard.c"
LIBRARY = RUNTIME / "libloopback_guard.so"
LINUX = sys.platform == "linux"
FRONTEND = f"share/jupyter/labextensions/{labextension.NAME}"
SERVER = "etc/jupyter/jupyter_server_config.d"


class BuildGuard(Command):
    """Compile the guard into the build folder; for an editable install, next to its source."""

    user_options: ClassVar[list[tuple[str, str | None, str]]] = []
    editable_mode = False
    build_lib: str | None = None

    def initialize_options(self) -> None:
        """Do nothing: setuptools sets `build_lib` and `editable_mode`."""

    def finalize_options(self) -> None:
        """Use the build folder of build_py."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Compile to a new file and rename it, because running processes still use the old one."""
        target = LIBRARY if self.editable_mode else Path(str(self.build_lib)) / LIBRARY
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(f".so.{os.getpid()}")
        compiler = find_compiler() or ZIG
        flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wl,-z,relro,-z,now"]
        command = [*compiler, *flags, "-o", str(fresh), str(SOURCE), "-ldl"]
        print(" ".join(command), flush=True)
        try:
            subprocess.run(command, check=True, cwd=HERE)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)

    def get_source_files(self) -> list[str]:
        """Return the files that an sdist needs."""
        return [str(SOURCE)]

    def get_outputs(self) -> list[str]:
        """Return the files that this command adds to a wheel."""
        return [str(Path(str(self.build_lib)) / LIBRARY)]

    def get_output_mapping(self) -> dict[str, str]:
        """Return, for each output in the build folder, the file that an editable install uses
        instead.
        """
        return {self.get_outputs()[0]: str(LIBRARY)}


class BuildLabExtension(Command):
    """Build the JupyterLab extension if it is not current, and install it as data files. An
    editable install has no data files; `make install` links the built extension instead.
    """

    user_options: ClassVar[list[tuple[str, str | None, str]]] = []
    editable_mode = False

    def initialize_options(self) -> None:
        """Do nothing: setuptools sets `editable_mode`."""

    def finalize_options(self) -> None:
        """Do nothing."""

    def run(self) -> None:
        """Build the extension and list every file with its target folder."""
        if self.editable_mode:
            return
        if why := labextension.left_out():
            print(f"without the JupyterLab extension: {why}", flush=True)
            return
        labextension.build()
        files: dict[str, list[str]] = {
            FRONTEND: ["labextension/install.json"],
            SERVER: [labextension.SERVER_CONFIG.relative_to(HERE).as_posix()],
        }
        for path in sorted(labextension.BUILT.rglob("*")):
            folder = path.relative_to(labextension.BUILT).parent
            if path.is_file() and path.name != labextension.STAMP:
                target = Path(FRONTEND, folder).as_posix()
                files.setdefault(target, []).append(path.relative_to(HERE).as_posix())
        self.distribution.data_files = [*files.items()]

    def get_source_files(self) -> list[str]:
        """Return nothing; MANIFEST.in lists the sources."""
        return []

    def get_outputs(self) -> list[str]:
        """Return nothing: no file is in the build folder."""
        return []

    def get_output_mapping(self) -> dict[str, str]:
        """Return nothing: no file is in the build folder."""
        return {}


class Build(build):
    """The standard build, followed by the builds of the loopback guard and the JupyterLab
    extension.
    """

    sub_commands: ClassVar = [
        *build.sub_commands,
        *([("build_guard", None)] if LINUX else []),
        ("build_labextension", None),
    ]


class SourceDistribution(sdist):
    """An sdist that includes the built extension, so that its installation needs no Node."""

    def run(self) -> None:
        """Build the extension before MANIFEST.in collects files."""
        self.run_command("build_labextension")
        super().run()


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag `py3-none-linux_x86_64` instead of `cp311-cp311-…`."""
        return ("py3", "none", super().get_tag()[2])


class NativeDistribution(Distribution):
    """A distribution with machine code, but without a Python extension."""

    def has_ext_modules(self) -> bool:
        """Return whether the wheel is for one platform."""
        return LINUX


setup(
    cmdclass={
        "build": Build,
        "build_guard": BuildGuard,
        "build_labextension": BuildLabExtension,
        "bdist_wheel": PlatformWheel,
        "sdist": SourceDistribution,
    },
    distclass=NativeDistribution,
)
