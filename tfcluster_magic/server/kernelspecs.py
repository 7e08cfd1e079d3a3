"""Which Python a kernel of this server runs: tasks run with the same, unless another is asked for.

Promises a path on this machine, or a sentence why a kernel has none: it runs elsewhere, or is no
Python. Starts nothing and never looks whether the Python is any good: the backend does.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_core.utils import ensure_async

from ..errors import InvalidRequest, Problem
from ..i18n import _
from .service import Service

_LOCAL = ("", "local-provisioner")
_OURS = ("python", f"python{sys.version_info[0]}", "python{}.{}".format(*sys.version_info[:2]))
"""Words in a kernelspec for which Jupyter starts its own Python."""


@dataclass(frozen=True)
class Kernel:
    """A kernelspec: its `python`, or `why` there is none that tasks could run with."""

    name: str
    title: str
    python: str | None
    why: str | None = None


async def kernels(service: Service) -> list[Kernel]:
    """Every kernel of the server, those for Python first; none where tasks run elsewhere."""
    if not (await service.backend()).is_here:
        return []
    manager = service.serverapp.kernel_spec_manager
    # it reads folders, or is a coroutine that asks a gateway
    specs: Mapping[str, Any] = await ensure_async(await service.worker.call(manager.get_all_specs))
    remote = _is_gateway(manager)
    found = [_kernel(name, entry["spec"], remote) for name, entry in specs.items()]
    return sorted(found, key=lambda kernel: (kernel.python is None, kernel.name))


def default_name(serverapp: Any) -> str:
    """The kernel that a new notebook gets."""
    return str(serverapp.kernel_manager.default_kernel_name)


async def python_of(service: Service, name: str | None) -> str | None:
    """The Python of kernel `name`, or of the default kernel; None for the server's own.

    Raises:
        InvalidRequest: there is no such kernel, or none that tasks could share a Python with.
    """
    known = {kernel.name: kernel for kernel in await kernels(service)}
    chosen = known.get(default_name(service.serverapp) if name is None else name)
    if name is not None and chosen is None:
        allowed = _("there is no such kernel here; there are {names}").format(
            names=", ".join(known) or _("none")
        )
        raise InvalidRequest([Problem("kernelspec", name, allowed)])
    if name is not None and chosen is not None and chosen.why is not None:
        raise InvalidRequest([Problem("kernelspec", name, chosen.why)])
    python = chosen.python if chosen is not None else None
    return None if python is None or _is_ours(python) else python


def _kernel(name: str, spec: Mapping[str, Any], remote: bool) -> Kernel:
    title = str(spec.get("display_name") or name)
    metadata = spec.get("metadata") or {}
    provisioner = (metadata.get("kernel_provisioner") or {}).get("provisioner_name", "")
    argv = spec.get("argv") or []
    if remote or provisioner not in _LOCAL:
        why = _("this kernel runs elsewhere, and the tasks run here: choose another kernel")
        return Kernel(name, title, None, why)
    command = str(argv[0]) if argv else ""
    if not re.fullmatch(r"(python|pypy)[\d.]*", os.path.basename(command)):
        why = _("this kernel is not started by a Python: choose another one, or name a Python")
        return Kernel(name, title, None, why)
    if command in _OURS:
        return Kernel(name, title, sys.executable)
    path = command if os.path.isabs(command) else shutil.which(command)
    if path is None:
        why = _("there is no {command} on the PATH: choose another kernel").format(command=command)
        return Kernel(name, title, None, why)
    return Kernel(name, title, path)


def _is_gateway(manager: Any) -> bool:
    return any(kind.__name__ == "GatewayKernelSpecManager" for kind in type(manager).__mro__)


def _is_ours(python: str) -> bool:
    """Whether it is the Python of this server, perhaps by its other name in the same folder."""
    same_folder = os.path.dirname(python) == os.path.dirname(sys.executable)
    return same_folder and os.path.realpath(python) == os.path.realpath(sys.executable)
