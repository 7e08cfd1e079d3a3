"""Quantities as users write them: memory as in Kubernetes ("2Gi"), durations as in Go ("1h30m").

Pure. Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping

from ..i18n import ngettext
from .message_table import Message

_MEMORY_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_DURATION_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


MEMORY_RULE = Message("WriteMemory")
DURATION_RULE = Message("WriteDuration")
NUMBER_RULE = Message("UseFiniteNumber")


def non_finite_numbers(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) for each number in JSON-like data that is NaN, infinite or too large for a
    float.
    """
    todo = [(path, data)]
    while todo:
        at, value = todo.pop()
        if isinstance(value, Mapping):
            dot = f"{at}." if at else ""
            todo += [(f"{dot}{key}", part) for key, part in reversed([*value.items()])]
        elif isinstance(value, (list, tuple)):
            todo += [(f"{at}[{i}]", part) for i, part in reversed([*enumerate(value)])]
        elif isinstance(value, float) and not math.isfinite(value):
            yield at, str(value)
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            yield at, hex(value)[:20] + "…"  # it may have too many decimal digits to convert


def parse_memory(text: str) -> int:
    """Return the bytes of a memory quantity: "2Gi" gives 2147483648. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*(Ki|Mi|Gi|Ti|k|M|G|T)?", text.strip())
    if not match:
        raise ValueError(Message("NotMemory", {"text": text, "rule": MEMORY_RULE}))
    return int(float(match.group(1)) * _MEMORY_UNITS[match.group(2) or ""])


def format_bytes(count: float) -> str:
    """Return a short quantity: 2147483648 gives "2Gi", 1610612736 gives "1536Mi"."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        size = _MEMORY_UNITS[unit]
        if count >= size and (count % size == 0 or unit == "Ki" or count >= 10 * size):
            return f"{round(count / size)}{unit}"
    return str(round(count))


def format_gpus(count: float) -> str:
    """Return a number of GPUs as text."""
    return ngettext("{count:g} GPU", "{count:g} GPUs", count).format(count=count)


def parse_duration(text: str) -> float:
    """Return the number of seconds of a duration: "1h30m" gives 5400.0, and "45" gives 45.0. Raises
    ValueError.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    whole = "".join(number + unit for number, unit in parts) == text.strip()
    if not parts or not whole or (len(parts) > 1 and any(not unit for _number, unit in parts)):
        raise ValueError(Message("NotDuration", {"text": text, "rule": DURATION_RULE}))
    seconds = sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
    if not math.isfinite(seconds):
        raise ValueError(NUMBER_RULE)
    return seconds
