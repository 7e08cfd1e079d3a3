"""The build backend: setuptools, plus a C compiler and JupyterLab's build tools if missing.

`pip install .` needs only Python and package registries. ziglang is added if no compiler works; the
extension's builder and Node are added if the extension is neither built nor cached.
`build-system.requires` cannot depend on what is on PATH, so these hooks add the packages. This
module also chooses the compiler for setup.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  every hook that is not replaced below

import labextension

ZIG = [sys.executable, "-m", "ziglang", "cc"]
ZIG_REQUIREMENT = "ziglang>=0.13,<1"
PROBE = "#include <dlfcn.h>\n#include <sys/socket.h>\nint probe(void) { return 0; }\n"


def find_compiler() -> list[str] | None:
    """Return the command of a C compiler: $CC without a check, else the first of cc, gcc and clang
    that works.

    Each compiler is tried on a small library, because containers often have a gcc without C
    headers. Return None if no compiler works.
    """
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path and _compiles(path):
            return [path]
    return None


def _compiles(compiler: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            compiler,
            "-shared",
            "-fPIC",
            "-x",
            "c",
            "-",
            "-o",
            str(Path(folder, "probe.so")),
        ]
        probe = subprocess.run(command, input=PROBE, text=True, capture_output=True, check=False)
        return probe.returncode == 0


def _with_compiler(requirements: list[str]) -> list[str]:
    needed = sys.platform == "linux" and find_compiler() is None
    return [*requirements, ZIG_REQUIREMENT] if needed else requirements


def _with_builder(requirements: list[str]) -> list[str]:
    return [*requirements, *labextension.requirements()]


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    """Return what a wheel needs beyond setuptools (PEP 517)."""
    return _with_builder(_with_compiler(build_meta.get_requires_for_build_wheel(config_settings)))


def get_requires_for_build_sdist(config_settings=None):  # type: ignore[no-untyped-def]
    """Return what an sdist needs beyond setuptools (PEP 517)."""
    return _with_builder(build_meta.get_requires_for_build_sdist(config_settings))


def get_requires_for_build_editable(config_settings=None):  # type: ignore[no-untyped-def]
    """Return what an editable install needs beyond setuptools (PEP 660)."""
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))
