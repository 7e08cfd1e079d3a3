"""Where in a YAML text something stands: the line of a mistake. Pure.

Promises the line of the value, or of the nearest thing around it that is there. Keys that stand
twice in a mapping are a mistake, too: YAML's readers take the last one without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

Step = str | int
"""A key of a mapping, or the place in a list."""


def line_of(text: str, path: tuple[Step, ...]) -> int:
    """The line, from 1, of what is at `path` in a text that is YAML."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == step), None)
            if found is None:
                break
            key, node = found
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            if step >= len(node.value):
                break
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def repeated(text: str) -> tuple[int, str] | None:
    """The first key that stands twice in one mapping, with its line."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for mapping in _mappings(root):
        seen: set[str] = set()
        for key, _value in mapping.value:
            if key.value in seen:
                return key.start_mark.line + 1, str(key.value)
            seen.add(key.value)
    return None


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _key, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _mappings(each)
