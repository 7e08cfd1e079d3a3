"""Start-up hook of programs, which makes their stacks readable and shortens a wait of TensorFlow 1.

When a signal that is otherwise unused arrives, Python's fault handler writes the Python stack of
every thread to memory that `runtime/stacks.py` reads, even if the program hangs.

A worker that starts before the chief has initialized the variables sleeps for 30 s (the default
recovery_wait_secs of SessionManager and Supervisor). This module reduces the wait to 1 s when the
program imports TensorFlow. Errors in this module never break a program. It also runs the
sitecustomize that Python would have found otherwise. Standard library only, Python 3.8 syntax.
"""

import os
import sys

# Modules of TensorFlow, each with a class whose __init__ has the parameter _PARAMETER. Its default
# is changed from _DEFAULT to _SHORT seconds.
_PATIENT = {
    "tensorflow.python.training.session_manager": "SessionManager",
    "tensorflow.python.training.supervisor": "Supervisor",
}
_PARAMETER = "recovery_wait_secs"
_DEFAULT = 30
_SHORT = 1


def _show_stacks():
    """Open the memory for stacks, and register the handler; see `runtime/stacks.py`."""
    if "TFCLUSTER_TASK" not in os.environ:
        return
    try:
        import faulthandler
        import signal

        memory = os.memfd_create("tfcluster-stacks")
        faulthandler.register(signal.SIGRTMAX - 7, memory, all_threads=True)
    except Exception:
        # The system lacks these functions: the program runs as it would without this hook.
        pass


def _shorten(module):
    """Replace the default in the class of this module; a value that a program passes is used."""
    import inspect

    init = inspect.unwrap(getattr(module, _PATIENT[module.__name__]).__init__)
    parameters = inspect.signature(init).parameters.values()
    with_default = [p for p in parameters if p.default is not p.empty]
    if len(with_default) == len(init.__defaults__ or ()):
        init.__defaults__ = tuple(
            _SHORT if p.name == _PARAMETER and p.default == _DEFAULT else p.default
            for p in with_default
        )


class _Finder:
    """An import finder, first in sys.meta_path. It uses the other finders, and modifies the modules
    of `_PATIENT`.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return the next finder's spec of a module of `_PATIENT`, changed such that the module is
        modified after its code has run.
        """
        if name not in _PATIENT:
            return None
        others = [finder for finder in sys.meta_path if finder is not _Finder]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                try:
                    _shorten(module)
                except Exception:
                    # An unknown TensorFlow: the program runs as it would without this hook.
                    pass

            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                # This loader cannot be changed: the program runs as it would without this hook.
                pass
        return spec


def _hand_on():
    """Run the next sitecustomize on the path, if there is one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec(
        "sitecustomize", [p for p in sys.path if os.path.abspath(p) != here]
    )
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _Finder)
_show_stacks()
_hand_on()
