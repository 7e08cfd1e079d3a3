"""The language of the hub's and console's pages, chosen for each request.

The hub's templates (Jinja) mark texts with `{% trans %}` and `_()`, the console's (Tornado) with
`_()`, its scripts with `t()` and `tn()`. All are in the Python catalog, which `make translations`
updates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment
from jinja2.ext import InternationalizationExtension
from tornado.httputil import HTTPHeaders

from .. import i18n


def choose_language(headers: HTTPHeaders) -> None:
    """Set the language of a request before its handler is called."""
    i18n.choose(i18n.accepted_languages(headers.get("Accept-Language", "")))


class PageTexts(InternationalizationExtension):
    """`{% trans %}`, `_()` and `page_language()` for templates, in the current language. A text may
    contain HTML; the values put into it are escaped.
    """

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.policies["ext.i18n.trimmed"] = True
        installed: Any = environment  # the base class has added `install_gettext_callables`
        installed.install_gettext_callables(i18n._, i18n.ngettext, newstyle=True)
        environment.globals["page_language"] = page_language


_CONSOLE_TEXT = re.compile(r'\b_\("([^"\\]*)"\)')
_LITERAL = r"'((?:[^'\\\n]|\\.)*)'"
_SCRIPT_TEXT = re.compile(rf"\bt\(\s*{_LITERAL}|\btn\(\s*{_LITERAL}\s*,\s*{_LITERAL}")


def console_texts(template: str) -> Iterator[str]:
    """Yield the texts marked in a template of the console."""
    return (found[1] for found in _CONSOLE_TEXT.finditer(template))


def script_texts(script: str) -> Iterator[str | tuple[str, str]]:
    """Yield the texts marked in a script of the console; singular and plural for `tn()`."""
    for found in _SCRIPT_TEXT.finditer(script):
        text, one, many = (re.sub(r"\\(.)", r"\1", each or "") for each in found.groups())
        yield text or (one, many)


def script_words(scripts: tuple[str, ...]) -> str:
    """Return translations of the texts in scripts, as JSON that is safe inside HTML.

    The JSON maps each text to its translation, and the singular of each `tn()` to both translated
    forms. It is empty for English.
    """
    if i18n.current_language() == i18n.ENGLISH:
        return "{}"
    words: dict[str, object] = {}
    for script in scripts:
        for text in script_texts(script):
            if isinstance(text, str):
                words[text] = i18n._(text)
            else:
                words[text[0]] = [i18n.ngettext(*text, count) for count in (1, 2)]
    return json.dumps(words, ensure_ascii=False).replace("<", "\\u003c")


def read_scripts(folder: Path) -> tuple[str, ...]:
    """Return the scripts in a folder, sorted by name."""
    return tuple(path.read_text("utf-8") for path in sorted(folder.glob("*.js")))


def page_language() -> str:
    """Return the current language as an HTML language tag, such as `en` or `zh-CN`."""
    return i18n.current_language().replace("_", "-")
