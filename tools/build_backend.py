"""The build backend: setuptools, plus a C compiler from PyPI (ziglang) where the machine has none that works.

It promises that `pip install .` needs nothing but Python and a package registry. It owns the choice of compiler; setup.py
uses it. `build-system.requires` cannot depend on what is on PATH, these hooks can.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import build_meta as setuptools_backend
from setuptools.build_meta import *  # noqa: F403  every hook that is not replaced below

ZIG = [sys.executable, "-m", "ziglang", "cc"]
ZIG_REQUIREMENT = "ziglang>=0.13,<1"
PROBE = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <sys/socket.h>\nint probe(void) { return 0; }\n"


def find_compiler() -> list[str] | None:
    """The command of a C compiler: $CC as it is, else the first of cc, gcc and clang that compiles; None if there is none.

    A gcc without the C library's headers is common in containers, so each is tried on a small library.
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


def _compiler_requirement() -> list[str]:
    needed = sys.platform == "linux" and find_compiler() is None
    return [ZIG_REQUIREMENT] if needed else []


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    """PEP 517: what a wheel needs beyond setuptools."""
    return (
        setuptools_backend.get_requires_for_build_wheel(config_settings) + _compiler_requirement()
    )


def get_requires_for_build_editable(config_settings=None):  # type: ignore[no-untyped-def]
    """PEP 660: what an editable install needs beyond setuptools."""
    return (
        setuptools_backend.get_requires_for_build_editable(config_settings)
        + _compiler_requirement()
    )
