"""A text that would be markup if a page did not escape it."""

from __future__ import annotations

HTML = "<img src=x onerror=alert(1)><b>exam</b>"
