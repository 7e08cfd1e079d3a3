"""Which lines are TensorFlow's own remarks and not the program's: what its C++ code logs as I or W.

Promises never to take an error (E, F) for one, nor anything that a Python file logs, absl included.
The twin of labextension/src/logs/noise.ts; a test holds them equal. Pure.
"""

from __future__ import annotations

import re

PATTERNS = (
    # 2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] …
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(?:cc|h|cpp|cu):\d+\]",
    # I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] …
    r"^[IW]\d{4} \d\d:\d\d:[\d.]+\s+\d+ \S+\.(?:cc|h|cpp|cu):\d+\]",
    # the second line of the first one above
    (
        r"^To enable the following instructions: .* "
        r"rebuild TensorFlow with the appropriate compiler flags\.$"
    ),
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$",
)
_REMARK = re.compile("|".join(PATTERNS))


def is_remark(text: str) -> bool:
    """Whether a line is a remark of TensorFlow's own."""
    return _REMARK.match(text) is not None
