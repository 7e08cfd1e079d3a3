"""Keep TensorFlow on loopback: where the guard library is, and how a running process uses it.

TensorFlow's servers (and the client of ParameterServerStrategy) listen on every address of the machine and
ask nobody who they are. Tasks get the guard as LD_PRELOAD; a notebook kernel runs already and calls
`guard_this_process()` after `import tensorflow`. Never imports TensorFlow.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from .errors import TFClusterError

_LIBRARY = Path(__file__).with_name("runtime") / "libloopback_guard.so"
_SOURCE = _LIBRARY.with_name("loopback_guard.c")


def guard_path() -> str | None:
    """The built guard library, None where there is none (other systems than Linux, or not built)."""
    return str(_LIBRARY) if _LIBRARY.is_file() else None


def guard_this_process() -> int:
    """Make the TensorFlow and gRPC libraries loaded so far listen on loopback only.

    Call after `import tensorflow` and before a server or strategy is made; calling again is harmless.

    Returns:
        How many places that call bind() now go through the guard; 0 when TensorFlow is not loaded, and
        then nothing is guarded.

    Raises:
        TFClusterError: the guard is not built or cannot be loaded here.
    """
    if guard_path() is None:
        raise TFClusterError(
            f"TensorFlow in this process would listen on every network address: the guard {_LIBRARY} is "
            "missing. It is built with the package on Linux; build it with: "
            f"cc -shared -fPIC -O2 -o {_LIBRARY} {_SOURCE} -ldl"
        )
    try:
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise TFClusterError(
            f"TensorFlow in this process would listen on every network address: the guard does not load "
            f"on this {sys.platform} machine ({error}). Reinstall tfcluster-magic here."
        ) from None
    guard = library.tfcluster_guard_loaded_libraries
    guard.restype, guard.argtypes = ctypes.c_int, []
    return int(guard())
