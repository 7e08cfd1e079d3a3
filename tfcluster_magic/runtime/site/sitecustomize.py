"""Shortens one wait of TensorFlow 1 programs, which stay unmodified: a worker that looks before the chief
has initialised the variables sleeps 30 s (SessionManager's recovery_wait_secs); here 1 s.

Does nothing until the program itself imports TensorFlow, never imports it, never breaks a program, and hands
on to any other sitecustomize on the path. Standard library only, Python 3.8 syntax.
"""

import sys

_MODULE = "tensorflow.python.training.session_manager"
_SECONDS = 1


def _shorten(module):
    """Replace the default of SessionManager(recovery_wait_secs=30); an explicit value stays."""
    import inspect

    init = module.SessionManager.__init__
    names = list(inspect.signature(init).parameters)
    after = len(names) - names.index("recovery_wait_secs")
    without_default = sum(p.default is p.empty for p in inspect.signature(init).parameters.values())
    defaults = list(init.__defaults__)
    position = names.index("recovery_wait_secs") - without_default
    if after > 0 and defaults[position] == 30:
        defaults[position] = _SECONDS
        init.__defaults__ = tuple(defaults)


class _Finder:
    """Stands first in sys.meta_path until the module is imported; finds nothing itself."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Let the others find the module, then run _shorten after it was executed."""
        if name != _MODULE:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not _Finder]
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                _shorten(module)
            except Exception:
                # Another TensorFlow than we know: the program runs as it would without us.
                pass

        try:
            spec.loader.exec_module = exec_module
        except Exception:
            # A loader that cannot be changed: as above.
            pass
        return spec


def _chain():
    """Run the sitecustomize that Python would have found without this one."""
    import os
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    path = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _Finder)
_chain()
