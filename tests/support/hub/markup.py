"""Text that would be markup if a page showed it as it is."""

from __future__ import annotations

HTML = "<img src=x onerror=alert(1)><b>exam</b>"
