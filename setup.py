"""Builds the one compiled file of the package: the loopback guard, which TensorFlow preloads.

It is a plain shared library, not a Python extension, so one wheel per platform serves every Python:
`py3-none-<platform>`. Outside Linux there is no guard and the wheel is `py3-none-any`.
Everything else is said in pyproject.toml.
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

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tools"))  # the build backend, wherever this file is run from

from build_backend import ZIG, find_compiler  # noqa: E402  found by the line above

RUNTIME = Path("tfcluster_magic", "runtime")
SOURCE = RUNTIME / "loopback_guard.c"
LIBRARY = RUNTIME / "libloopback_guard.so"
LINUX = sys.platform == "linux"


class BuildGuard(Command):
    """Compile the guard into the build folder, or beside its source for an editable install."""

    user_options: ClassVar[list[tuple[str, str | None, str]]] = []
    editable_mode = False
    build_lib: str | None = None

    def initialize_options(self) -> None:
        """Nothing to set: setuptools fills `build_lib` and `editable_mode`."""

    def finalize_options(self) -> None:
        """Build where build_py does."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Compile to a new file and rename: running processes keep the library they have mapped."""
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
        """What an sdist must hold."""
        return [str(SOURCE)]

    def get_outputs(self) -> list[str]:
        """What a wheel holds because of this command."""
        return [str(Path(str(self.build_lib)) / LIBRARY)]

    def get_output_mapping(self) -> dict[str, str]:
        """Where an editable install finds each output."""
        return {self.get_outputs()[0]: str(LIBRARY)}


class Build(build):
    """The usual build, then the guard."""

    sub_commands: ClassVar = [*build.sub_commands, *([("build_guard", None)] if LINUX else [])]


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """`py3-none-linux_x86_64`, not `cp311-cp311-…`."""
        return ("py3", "none", super().get_tag()[2])


class NativeDistribution(Distribution):
    """A distribution that holds machine code, though no Python extension."""

    def has_ext_modules(self) -> bool:
        """Whether the wheel belongs to one platform."""
        return LINUX


setup(
    cmdclass={"build": Build, "build_guard": BuildGuard, "bdist_wheel": PlatformWheel},
    distclass=NativeDistribution,
)
