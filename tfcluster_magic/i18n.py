"""The language of messages: English as it stands in the code, or a catalog of `locale/`.

English costs nothing (no file is read, `gettext` is not imported), and a language without a
catalog, or a catalog without a text, gives English. Owns the choice of the language: what
`language` says for a block of code, else TFCLUSTER_LANGUAGE, else the variables of gettext. Never
translates when a module is imported: the language may differ from one request to the next.

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

# The first that is set counts, as in gettext; LANGUAGE may name several, separated by colons.
_VARIABLES = (VARIABLE, "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_UNTRANSLATED = ("c", "posix", ENGLISH)
_TRADITIONAL = {"tw", "hk", "mo", "hant"}  # readers of these are not served by simplified Chinese
_requested: ContextVar[str | None] = ContextVar("tfcluster_language", default=None)


def _(message: str) -> str:
    """`message` in the language of the moment."""
    catalog = (
        _catalog(_requested_or_environment()) if message else None
    )  # the empty message is a catalog's header
    return message if catalog is None else catalog.gettext(message)


def mark(message: str) -> str:
    """`message` itself: a constant that is translated with `_` where it is shown."""
    return message


def mark_plural(one: str, many: str) -> tuple[str, str]:
    """Both forms of a constant sentence, which `ngettext` chooses between where it is shown."""
    return one, many


def ngettext(one: str, many: str, number: float) -> str:
    """The form of a sentence that goes with `number`, in the language of the moment."""
    catalog = _catalog(_requested_or_environment())
    if catalog is None:
        return one if number == 1 else many
    return catalog.ngettext(one, many, int(number))


@contextmanager
def language(wanted: str | None) -> Iterator[None]:
    """Speak this language (`zh-CN`, `zh_CN.UTF-8`) inside; None leaves it to the environment."""
    before = _requested.set(wanted)
    try:
        yield
    finally:
        _requested.reset(before)


def choose(wanted: str | None) -> None:
    """Speak this language from here on in this context, and in tasks that begin in it: for who
    calls a request's handler and does not see its end.
    """
    _requested.set(wanted)


def requested_language() -> str | None:
    """The language that `language` was given."""
    return _requested.get()


def current_language() -> str:
    """The language spoken at the moment: `en`, or the name of a folder of `locale/`."""
    return (
        ENGLISH
        if _catalog(_requested_or_environment()) is None
        else _choice(_requested_or_environment())
    )


def accepted_languages(header: str) -> str | None:
    """An Accept-Language header as `language` takes it, the best first; None when it names none."""
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
    """The first of the languages in `wanted` that is English or has a catalog."""
    for entry in wanted.split(":"):
        tag = _folder(entry)
        if tag == ENGLISH or os.path.exists(_file(tag)):
            return tag
    return ENGLISH


def _folder(entry: str) -> str:
    """The folder of `locale/` for `zh-CN`, `zh_CN.UTF-8` or `zh-Hans`; `en` for C and POSIX."""
    tag = entry.partition(".")[0].partition("@")[0].replace("-", "_")
    first, *rest = tag.split("_")
    if first.lower() in _UNTRANSLATED:
        return ENGLISH
    if first.lower() == "zh":
        return "" if _TRADITIONAL & {word.lower() for word in rest} else "zh_CN"
    return tag if tag.isidentifier() else ""  # never a path


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
