"""Keep TensorFlow on loopback: where the guard library is, and how a running process uses it.

TensorFlow's servers (and the client of ParameterServerStrategy) listen on every address of the
machine and ask nobody who they are. Tasks get the guard as LD_PRELOAD; a notebook kernel runs
already and calls `guard_this_process()` after `import tensorflow`. What is guarded lets in this
account and root alone. Never imports TensorFlow.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from ..errors import TFClusterError
from ..i18n import _, mark

_LIBRARY = Path(__file__).parents[1] / "runtime" / "libloopback_guard.so"
_EXPOSED = mark("TensorFlow in this process would listen on every network address")


def guard_path() -> str | None:
    """The built guard library; None where there is none (not Linux, or not built)."""
    return str(_LIBRARY) if _LIBRARY.is_file() else None


def guard_this_process() -> int:
    """Make the TensorFlow and gRPC libraries loaded so far listen on loopback only.

    Call after `import tensorflow` and before a server or strategy is made; calling again is
    harmless.

    Returns:
        How many places that call bind(), listen() or accept() the guard redirects now; 0 if
        TensorFlow is not loaded, and then nothing is guarded.

    Raises:
        TFClusterError: the guard is not built or cannot be loaded here.
    """
    if guard_path() is None:
        source = _LIBRARY.with_name("loopback_guard.c")
        raise TFClusterError(
            _(
                "{exposed}: the guard {library} is missing. Reinstall tfcluster-magic on Linux, or "
                "build it: cc -shared -fPIC -O2 -o {library} {source} -ldl"
            ).format(exposed=_(_EXPOSED), library=_LIBRARY, source=source)
        )
    try:
        guard = ctypes.CDLL(str(_LIBRARY)).tfcluster_guard_loaded_libraries
    except (OSError, AttributeError) as error:
        raise TFClusterError(
            _(
                "{exposed}: the guard cannot be used here ({error}). Reinstall tfcluster-magic."
            ).format(exposed=_(_EXPOSED), error=error)
        ) from None
    guard.restype, guard.argtypes = ctypes.c_int, []
    return int(guard())
