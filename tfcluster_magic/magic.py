"""`%tfcluster` and `%%tfcluster`: the command line's parser in a cell.

Promises that loading the extension costs nothing that a notebook would feel: whatever a line needs
is imported when it is run. Owns the registration of the magics and of their completion; `cell.py`
does the rest.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class

if TYPE_CHECKING:
    from .cluster import Cluster
    from .manager import ClusterManager

_OUR_LINES = r".*%tfcluster\s"


@magics_class
class TFClusterMagics(Magics):  # type: ignore[misc]  # IPython's classes are untyped here
    """The magics of a shell."""

    @cached_property
    def manager(self) -> ClusterManager:
        """The door to the clusters, configured by `c.ClusterManager` of the kernel."""
        from .manager import ClusterManager

        return ClusterManager(parent=self.shell)

    @line_cell_magic  # type: ignore[untyped-decorator]  # IPython's decorators are untyped
    def tfcluster(self, line: str, cell: str | None = None) -> Cluster | None:
        """Launch and watch TensorFlow clusters; `%tfcluster --help` says how."""
        from .cell import run

        return run(self.shell, self.manager, line, cell)


def _complete(shell: Any, event: Any) -> list[str]:
    from .cli.tab import complete

    return complete(shell, event)


def load(shell: Any) -> None:
    """Register the magics and their completion."""
    unload(shell)  # IPython keeps every hook it was ever given, and would offer each word twice
    shell.register_magics(TFClusterMagics(shell))
    shell.set_hook("complete_command", _complete, re_key=_OUR_LINES)


def unload(shell: Any) -> None:
    """Forget the magics and their completion."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("tfcluster", None)
    if completers := shell.strdispatchers.get("complete_command"):
        completers.regexs.pop(re.compile(_OUR_LINES), None)
