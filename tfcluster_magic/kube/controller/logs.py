"""A controller's log: standard error, one line for each event."""

from __future__ import annotations

import json
import logging
import sys
import time


def begin(*, as_json: bool) -> None:
    """Write the process' log from now on, as words or as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(as_json))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


class OneLine(logging.Formatter):
    """Time, level, words; or the same as JSON."""

    def __init__(self, as_json: bool) -> None:
        super().__init__("%(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in it."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        at += f".{int(record.msecs):03}Z"
        said = super().format(record)
        if self._as_json:
            entry = {"time": at, "level": record.levelname, "logger": record.name, "message": said}
            return json.dumps(entry, ensure_ascii=False)
        return f"{at} {record.levelname} {' | '.join(said.splitlines())}"
