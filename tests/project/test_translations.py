"""The message catalogs, which are complete and current, and keep the placeholders and commands of
the sources.
"""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from babel.messages.catalog import Message
from support.project import ROOT
from support.project_tools import tool

made = tool("translations")
CATALOGS = [(d, l) for d in (made.PYTHON, made.PAGE) for l in made.LANGUAGES]
MODULES = [
    path
    for path in sorted((ROOT / "tfcluster_magic").rglob("*.py"))
    if "runtime" not in path.parts and "labextension" not in path.parts
]
# Calls whose text users read: errors, problems, and output of commands.
SAYING = re.compile(
    r"(\w*Error|InvalidRequest|NameTaken|NotFound|Conflict|ClusterFailed|WaitTimeout"
    r"|BackendUnavailable|ClientUnsupported|Problem|refusal|say|note|link|confirm)$"
)
# Exceptions that are raised for programmers or never shown; their texts stay untranslated.
FOR_PROGRAMMERS = {"AttributeError", "OSError", "RuntimeError", "AssertionError", "HTTPError"}
FOR_PROGRAMMERS |= {"TypeError", "KeyError", "ImportError", "ValueError", "ValidationError"}


@cache
def parsed(path: Path) -> ast.Module:
    """Return the parsed module at `path`, cached for the tests below."""
    return ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize(("domain", "language"), CATALOGS)
def test_every_message_of_the_sources_is_translated(domain: str, language: str) -> None:
    """`make translations` changes nothing and reports nothing, and the compiled catalogs match the
    `.po` file.
    """
    catalog, current = made.written(domain, language), made.updated(domain, language)

    advice = "run `make translations`, and translate what it lists"
    assert {_key(m) for m in current} == {_key(m) for m in catalog}, advice
    assert [m.id for m in catalog if m.id and not made.is_translated(m)] == [], advice
    assert [m.id for m in catalog if m.fuzzy and m.id] == []
    assert not catalog.obsolete
    for path, content in made.files(domain, language, current).items():
        assert path.read_bytes() == content, f"{path.name} is out of date: make translations"


@pytest.mark.parametrize(("domain", "language"), CATALOGS)
def test_a_translation_has_the_placeholders_of_its_message(domain: str, language: str) -> None:
    """No placeholder of a message is lost or misspelt in a translation."""
    wrong = [
        (message.id, form)
        for message in made.written(domain, language)
        if message.id
        for form in made.forms(message)
        if _placeholders(form) not in [_placeholders(text) for text in _texts(message)]
    ]

    assert wrong == []


@pytest.mark.parametrize(("domain", "language"), CATALOGS)
def test_commands_in_a_message_stay_as_they_are(domain: str, language: str) -> None:
    """Text between backticks is typed by users, so it is the same in every language."""
    for message in made.written(domain, language):
        for form in made.forms(message) if message.id else ():
            commands = sorted(re.findall(r"`[^`\n]+`", form))
            assert commands in [sorted(re.findall(r"`[^`\n]+`", t)) for t in _texts(message)]


@pytest.mark.parametrize("language", made.LANGUAGES)
def test_jupyterlab_finds_the_plurals_of_a_language_that_has_none(language: str) -> None:
    """In the page's catalog, a plural has at least two entries; otherwise, JupyterLab ignores
    it.
    """
    catalog = made.written(made.PAGE, language)
    told = json.loads((made.folder(language) / f"{made.PAGE}.json").read_text("utf-8"))

    plurals = [message.id[0] for message in catalog if isinstance(message.id, tuple)]

    assert plurals
    assert [one for one in plurals if len(told[one]) < 2] == []


def test_every_error_and_remark_is_made_of_a_translated_text() -> None:
    """No error, problem or note of the package is built from a text without `_`."""
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in MODULES
        for line, text in _bare_texts(parsed(path))
    ]

    assert not bare, "\n".join(bare)


def test_nothing_takes_the_name_of_the_translation() -> None:
    """A function that translates does not bind `_` to anything else."""
    hidden = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in MODULES
        for scope in ast.walk(parsed(path))
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for line in _hides_translation(scope)
    ]

    assert not hidden, "\n".join(hidden)


def test_no_text_is_translated_when_a_module_is_imported() -> None:
    """No text is translated at import, because the language may differ between requests; constants
    are only marked for translation.
    """
    early = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in MODULES
        for call in _calls_at_import(parsed(path))
        if isinstance(call.func, ast.Name) and call.func.id in ("_", "ngettext")
    ]

    assert not early, "\n".join(early)


def _calls_at_import(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Call):
            yield inner
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # decorators and default values are evaluated at import, too
            for once in (*inner.decorator_list, inner.args):
                yield from _calls_at_import(once)
        elif not isinstance(inner, ast.Lambda):
            yield from _calls_at_import(inner)


def _key(message: Message) -> tuple[object, object]:
    return message.id, message.context


def _texts(message: Message) -> list[str]:
    return [message.id] if isinstance(message.id, str) else list(message.id)


def _placeholders(text: str) -> list[str]:
    """Return the placeholders of messages in Python (`{name!r:fmt}`), the page (`%1`) and the hub
    (`%(name)s`).
    """
    try:
        named = [f"{n}!{c}:{f}" for _, n, f, c in string.Formatter().parse(text) if n is not None]
    except ValueError:
        named = ["no format"]
    return sorted({*named, *re.findall(r"%\d|%\(\w+\)s", text)})


def _bare_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if not SAYING.match(name) or name in FOR_PROGRAMMERS or name.startswith("_"):
            continue
        for argument in node.args:
            text = _literal(argument)
            if re.search(r"[a-z]{2,} [a-z]{2,}", text):
                yield argument.lineno, text


def _literal(node: ast.expr) -> str:
    """Return the literal part of the text that `node` makes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _literal(part) if isinstance(part, ast.Constant) else "0" for part in node.values
        )
    if isinstance(node, ast.IfExp):
        return f"{_literal(node.body)}0{_literal(node.orelse)}"
    return ""


def _hides_translation(scope: ast.AST) -> list[int]:
    inside = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == "_"]
    comprehended = {
        id(node)
        for inner in ast.walk(scope)
        if isinstance(inner, ast.comprehension)
        for node in ast.walk(inner.target)
    }
    stored = [
        n.lineno for n in inside if isinstance(n.ctx, ast.Store) and id(n) not in comprehended
    ]
    return stored if any(isinstance(n.ctx, ast.Load) for n in inside) else []
