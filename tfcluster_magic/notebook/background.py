"""Actions of the panel's buttons, done beside the kernel: no callback takes time.

Promises that a button does one thing at a time, that it can be pressed again afterwards, and that a
refusal is shown as its sentence. A thread never prints: text would land in whichever cell runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..errors import TFClusterError


class Background:
    """Does what buttons ask for; `tell` shows a sentence, an error when its second argument is."""

    def __init__(self, tell: Callable[[str, bool], None]) -> None:
        self._tell = tell

    def on(
        self, button: Any, action: Callable[[], str | None], after: Callable[[], None] | None = None
    ) -> None:
        """Have `button` do `action`, which may return a sentence to show.

        It cannot be pressed meanwhile; `after` says whether it can be then, else it can.
        """

        def pressed(_button: Any) -> None:
            if button.disabled:  # a second press that was under way
                return
            button.disabled = True
            self.do(action, after or (lambda: setattr(button, "disabled", False)))

        button.on_click(pressed)

    def do(
        self, action: Callable[[], str | None], after: Callable[[], None] = lambda: None
    ) -> None:
        """Do `action` in a thread, then `after`, whatever came of it."""

        def work() -> None:
            try:
                told = action()
                if told is not None:
                    self._tell(told, False)
            except TFClusterError as refusal:
                self._tell(str(refusal), True)
            except Exception as error:  # noqa: BLE001 - a thread's traceback is seen by nobody
                self._tell(f"{type(error).__name__}: {error}", True)
            finally:
                after()

        threading.Thread(target=work, name="tfcluster-panel", daemon=True).start()
