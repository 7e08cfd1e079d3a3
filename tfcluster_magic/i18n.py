"""The language of messages: English from the code, or a catalog in `locale/`.

English costs nothing: no file is read and `gettext` is not imported. English is also used for a
language without a catalog and for a text without a translation. The language is that of the
enclosing `language` block, else TFCLUSTER_LANGUAGE, else that of gettext's variables. Nothing is
translated at import time, because the language may differ between requests.

  _("{name} has ended").format(name=name)
  ngettext("{count} task", "{count} tasks", count).format(count=count)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gettext import GNUTranslations

DOMAIN = "tfcluster_magic"
ENGLISH = "en"
VARIABLE = "TFCLUSTER_LANGUAGE"
LOCALE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "locale")

# The first of these variables that is set decides the language, as in gettext. LANGUAGE may list
# several languages, separated by colons.
_VARIABLES = (VARIABLE, "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_UNTRANSLATED = ("c", "posix", ENGLISH)
_TRADITIONAL = {"tw", "hk", "mo", "hant"}  # traditional Chinese, not simplified
_requested: ContextVar[str | None] = ContextVar("tfcluster_language", default=None)


def _(message: str) -> str:
    """Return `message` in the current language."""
    catalog = (
        _catalog(_requested_or_environment()) if message else None
    )  # an empty message would return the catalog's header
    return message if catalog is None else catalog.gettext(message)


def mark(message: str) -> str:
    """Mark a constant for translation and return it; `_` translates it when it is shown."""
    return message


def mark_plural(one: str, many: str) -> tuple[str, str]:
    """Mark both forms of a constant sentence; `ngettext` chooses one when it is shown."""
    return one, many


def ngettext(one: str, many: str, number: float) -> str:
    """Return the form of a sentence for `number`, in the current language."""
    catalog = _catalog(_requested_or_environment())
    if catalog is None:
        return one if number == 1 else many
    return catalog.ngettext(one, many, int(number))


@contextmanager
def language(wanted: str | None) -> Iterator[None]:
    """Use a language (`zh-CN`, `zh_CN.UTF-8`) inside the block; `None` stands for the language of
    the environment.
    """
    before = _requested.set(wanted)
    try:
        yield
    finally:
        _requested.reset(before)


def choose(wanted: str | None) -> None:
    """Use a language in the rest of this context, and in asyncio tasks that it starts. Unlike
    `language`, this function needs no block: call it at the start of a request if no single block
    of code encloses the whole request.
    """
    _requested.set(wanted)


def requested_language() -> str | None:
    """Return the language set by `language` or `choose`; None if none is set."""
    return _requested.get()


def current_language() -> str:
    """Return the current language: `en`, or the name of a folder in `locale/`."""
    return (
        ENGLISH
        if _catalog(_requested_or_environment()) is None
        else _choice(_requested_or_environment())
    )


def accepted_languages(header: str) -> str | None:
    """Return the languages in an Accept-Language header, best first, as an argument of `language`;
    None if the header has none.
    """
    ranked = []
    for position, entry in enumerate(header.split(",")):
        tag, _semicolon, quality = entry.partition(";")
        weight = _number(quality.strip().removeprefix("q="))
        if tag.strip() not in ("", "*") and weight > 0:
            ranked.append((-weight, position, tag.strip()))
    return ":".join(tag for _weight, _position, tag in sorted(ranked)) or None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def _requested_or_environment() -> str:
    asked = _requested.get()
    if asked is not None:
        return asked
    for name in _VARIABLES:
        if value := os.environ.get(name):
            return value
    return ENGLISH


@lru_cache(maxsize=64)
def _choice(wanted: str) -> str:
    """Return the first language in `wanted` that is English or has a catalog."""
    for entry in wanted.split(":"):
        tag = _folder(entry)
        if tag == ENGLISH or os.path.exists(_file(tag)):
            return tag
    return ENGLISH


def _folder(entry: str) -> str:
    """Return the folder in `locale/` for `zh-CN`, `zh_CN.UTF-8` or `zh-Hans`; `en` for C, POSIX."""
    tag = entry.partition(".")[0].partition("@")[0].replace("-", "_")
    first, *rest = tag.split("_")
    if first.lower() in _UNTRANSLATED:
        return ENGLISH
    if first.lower() == "zh":
        return "" if _TRADITIONAL & {word.lower() for word in rest} else "zh_CN"
    return tag if tag.isidentifier() else ""  # a folder's name must not be a path


def _file(tag: str) -> str:
    return os.path.join(LOCALE_DIR, tag, "LC_MESSAGES", f"{DOMAIN}.mo")


@lru_cache(maxsize=64)
def _catalog(wanted: str) -> GNUTranslations | None:
    tag = _choice(wanted)
    if tag == ENGLISH:
        return None
    from gettext import GNUTranslations

    try:
        with open(_file(tag), "rb") as file:
            return GNUTranslations(file)
    except OSError:
        return None
