"""The magics `%tfcluster` and `%%tfcluster`: the command line's parser in a cell.

Loading the extension is fast, because most modules are imported only when a line runs. This module
registers the magics and their completion; `magic_line.py` runs and completes the lines.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher
from IPython.core.magic import Magics, line_cell_magic, magics_class

if TYPE_CHECKING:
    from ..runs.handle import Cluster
    from ..runs.manager import ClusterManager
    from ..runs.watcher import RunWatcher

_OUR_LINE = re.compile(r"%tfcluster\s(.*)", re.DOTALL)
_MATCHER = "tfcluster"  # IPython identifies our matcher by this name
_FIRST = 1000.0  # runs first, so that Jedi does not parse a line that is not Python


@magics_class
class TFClusterMagics(Magics):  # type: ignore[misc]  # IPython's classes are untyped here
    """The magics of one IPython shell."""

    @cached_property
    def manager(self) -> ClusterManager:
        """The cluster manager, configured by `c.ClusterManager` of the kernel."""
        from ..runs.manager import ClusterManager

        return ClusterManager(parent=self.shell)

    @cached_property
    def watcher(self) -> RunWatcher:
        """The watcher of all runs, shared by the panels of this kernel."""
        from ..runs.watcher import RunWatcher

        return RunWatcher(self.manager)

    @line_cell_magic  # type: ignore[untyped-decorator]  # IPython's decorators are untyped
    def tfcluster(self, line: str, cell: str | None = None) -> Cluster | None:
        """Launch and watch TensorFlow clusters; `%tfcluster --help` says how."""
        from .magic_line import run, show_panel

        if not line.strip() and cell is None and show_panel(self.shell, self.manager, self.watcher):
            return None
        return run(self.shell, self.manager, line, cell)


def _matcher(magics: TFClusterMagics) -> Any:
    """Return the matcher with which IPython completes `%tfcluster` lines. It offers only the words
    that `tfcluster` accepts. IPython's hook `complete_command` would not be enough, because Jedi
    would still read the line as Python and list Python's keywords first.
    """

    @context_matcher(identifier=_MATCHER, priority=_FIRST)  # type: ignore[untyped-decorator]
    def match(context: Any) -> dict[str, Any]:
        ours = _OUR_LINE.search(context.text_until_cursor)
        if ours is None:
            return {"completions": []}
        from ..cli.terminal import Terminal
        from .magic_line import completions, unfinished_word

        found = completions(ours[1], Terminal(magics.manager))
        return {
            "completions": [SimpleCompletion(word, type="tfcluster") for word in found],
            "matched_fragment": unfinished_word(ours[1]),
            "suppress": True,
            "ordered": True,
        }

    return match


def load(shell: Any) -> None:
    """Register the magics and their completion."""
    unload(shell)  # IPython keeps old matchers, which would offer each word twice
    magics = TFClusterMagics(shell)
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(_matcher(magics))


def load_ipython_extension(shell: Any) -> None:
    """Register the magics. `make run` loads the extension as `tfcluster_magic.notebook.magic`. So
    IPython does not warn that the extension is already loaded when the user types `%load_ext
    tfcluster_magic`.
    """
    load(shell)


def unload(shell: Any) -> None:
    """Remove the magics and their completion."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("tfcluster", None)
    matchers = shell.Completer.custom_matchers
    matchers[:] = [m for m in matchers if getattr(m, "matcher_identifier", "") != _MATCHER]
