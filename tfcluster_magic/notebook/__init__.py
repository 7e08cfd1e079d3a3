"""The panel: a launch form and the list of runs below a cell, from bare `%tfcluster`.

Promises to work wherever ipywidgets do (JupyterLab, Notebook 7, without the Lab extension), that
the kernel is never kept from running cells, that several panels agree because all show the records,
and that a panel made anew after a restart of the kernel shows the same runs. A document that is
exported shows the table of `%tfcluster list`.
"""

from __future__ import annotations

from .view import Panel

__all__ = ["Panel"]
