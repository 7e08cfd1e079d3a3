"""The items of a log stream, and the lines in them."""

from __future__ import annotations

import json
from typing import Any

from support.server.calls import Answer


def items(answer: Answer) -> list[Any]:
    assert answer.content_type == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.removesuffix("\n").split("\n")]


def lines(found: list[Any]) -> list[tuple[str, str]]:
    return [(line[0], line[1]) for item in found for line in item.get("lines", ())]
