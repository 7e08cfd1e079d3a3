"""Update the message catalogs: `make translations`, or `--check` to change nothing.

Each language has two catalogs in tfcluster_magic/locale: `tfcluster_magic.po` for Python (command
line, magic, server) and `tfcluster.po` for the JupyterLab extension and its settings. Messages are
read from the sources, help texts from the commands. Catalogs are compiled to `.mo` for gettext and
`.json` for JupyterLab.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tfcluster_magic"
LOCALE = PACKAGE / "locale"
PAGES = ROOT / "labextension"
LANGUAGES = ("zh_CN",)
PYTHON, PAGE = "tfcluster_magic", "tfcluster"

_PYTHON_CALLS = {
    "_": 1,
    "mark": 1,
    "ngettext": 2,
    "mark_plural": 2,
}  # language, and the number of its plural forms
_MARKED_ELSEWHERE = (ast.Name, ast.Attribute, ast.Starred, ast.Subscript)
_PAGE_CALLS = {"__": 1, "_n": 2, "_p": 2, "_np": 3}
_PAGE_CALL = re.compile(r"\.(__|_n|_p|_np)\(")
_STRING = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\$]|\\.|\$(?!\{))*`""")
_LITERAL = re.compile(rf"\s*(?:{_STRING.pattern})(?:\s*\+\s*(?:{_STRING.pattern}))*\s*[,)]")
# The paths of the texts in a settings schema that JupyterLab's server translates, each with the
# gettext context under which the server looks it up.
_SCHEMA = (
    (re.compile(r"(/properties/.*|/definitions/.*/properties/.*)/(title|description)"), "settings"),
    (re.compile(r"/(title|description)"), "schema"),
    (re.compile(r"/jupyter\.lab\.setting-icon-label"), "settings"),
    (re.compile(r"/jupyter\.lab\.menus/.*/label"), "menu"),
    (re.compile(r"/jupyter\.lab\.toolbars/.*/label"), "toolbar"),
)
_CREATED = datetime(2026, 1, 1, tzinfo=timezone.utc)  # the current date would change every file


class Incomplete(Exception):
    """A translation call without a literal text."""


def template(domain: str) -> Catalog:
    """Return a catalog of all messages in the sources, without translations."""
    found = Catalog(domain=domain, project="TFCluster", fuzzy=False, creation_date=_CREATED)
    source = python_messages() if domain == PYTHON else page_messages()
    for place, message, context in source:
        found.add(message, locations=[(place, 0)], context=context)
    return found


def python_messages() -> Iterator[tuple[str, str | tuple[str, ...], str | None]]:
    """Yield the Python messages: the place, the message (or its forms), and the context."""
    for path in sorted(PACKAGE.rglob("*.py")):
        below = path.relative_to(PACKAGE)
        if below.parts[0] in ("runtime", "labextension", "locale"):
            continue  # code that runs inside a task has no catalog
        place = str(path.relative_to(ROOT))
        for message in _called(place, path.read_text("utf-8")):
            yield place, message, None
    yield from _template_messages()
    yield from _help_messages()


def _template_messages() -> Iterator[tuple[str, str | tuple[str, ...], None]]:
    """Yield the messages that the templates of the hub's pages mark."""
    from jinja2 import Environment

    sys.path.insert(0, str(ROOT))
    from tfcluster_magic.hub.page_language import PageTexts, console_texts, script_texts

    console = PACKAGE / "hub" / "console" / "pages"
    for path in sorted([*console.glob("*.html"), *console.glob("*.js")]):
        texts_of = console_texts if path.suffix == ".html" else script_texts
        for message in texts_of(path.read_text("utf-8")):
            yield str(path.relative_to(ROOT)), message, None
    # any type: mypy does not know the methods that `PageTexts` adds
    pages: Any = Environment(autoescape=True, extensions=[PageTexts])
    for path in sorted((PACKAGE / "hub" / "templates").glob("*.html")):
        place = str(path.relative_to(ROOT))
        for _line, _function, message in pages.extract_translations(path.read_text("utf-8")):
            texts = message if isinstance(message, tuple) else (message,)
            # the text is None for `_(name)`, which has no literal text
            forms = tuple(text for text in texts if text is not None)
            if forms:
                yield place, forms[0] if len(forms) == 1 else forms, None


def _called(place: str, source: str) -> list[str | tuple[str, ...]]:
    """Return the literal texts of all translation calls in a file, in f-strings too, which Babel
    does not search.
    """
    found: list[tuple[int, str | tuple[str, ...]]] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        forms = node.args[: _PYTHON_CALLS.get(node.func.id, 0)]
        texts = [
            form.value
            for form in forms
            if isinstance(form, ast.Constant) and isinstance(form.value, str)
        ]
        if texts and len(texts) == len(forms):
            found.append((node.lineno, texts[0] if len(texts) == 1 else tuple(texts)))
        elif forms and not isinstance(forms[0], _MARKED_ELSEWHERE):
            raise Incomplete(f"{place}:{node.lineno}: {node.func.id}() needs its text as it is")
    return [message for _line, message in sorted(found, key=lambda entry: entry[0])]


def _help_messages() -> Iterator[tuple[str, str, None]]:
    """Yield the help of every command and option, as the command line declares it."""
    import click

    sys.path.insert(0, str(ROOT))
    from tfcluster_magic import cli
    from tfcluster_magic.cli.group import VERBS, paragraphs
    from tfcluster_magic.launch.options import OPTIONS

    group = cli.tfcluster
    commands = [group, *(group.get_command(click.Context(group), verb) for verb in VERBS)]
    for command in commands:  # includes the subcommands that the loop appends
        assert command is not None
        commands += getattr(command, "commands", {}).values()
        place = f"tfcluster_magic/cli ({command.name})"
        for text in (command.help, command.epilog):
            yield from ((place, message, None) for message, _stays in paragraphs(text or ""))
        for option in command.params:
            if isinstance(option, click.Option) and option.help:
                yield place, option.help, None
    for row in OPTIONS:
        yield "tfcluster_magic/launch/options.py", row.help, None
        yield from (
            ("tfcluster_magic/launch/options.py", label, None) for label in (row.label,) if label
        )


def page_messages() -> Iterator[tuple[str, str | tuple[str, ...], str | None]]:
    """Yield the messages of the JupyterLab extension and its settings."""
    for path in sorted((PAGES / "src").rglob("*.ts*")):
        place = str(path.relative_to(ROOT))
        for message, context in _asked_of_trans(place, path.read_text("utf-8")):
            yield place, message, context
    yield from _shared_messages()
    for path in sorted((PAGES / "schema").glob("*.json")):
        for message, context in _schema_messages(json.loads(path.read_text("utf-8")), ""):
            yield str(path.relative_to(ROOT)), message, context


def _shared_messages() -> Iterator[tuple[str, str | tuple[str, ...], None]]:
    """Yield the messages about a run's state, which the Lab extension shows, too."""
    place = "tfcluster_magic/spec/message_table.py"
    for message in _called(place, (ROOT / place).read_text("utf-8")):
        yield place, message, None


def _asked_of_trans(place: str, source: str) -> Iterator[tuple[str | tuple[str, ...], str | None]]:
    """Yield the texts of all translation calls in a TypeScript file, including those in templates
    and JSX. Only the arguments of a call are parsed, so no other TypeScript syntax matters.
    """
    for call in _PAGE_CALL.finditer(source):
        texts: list[str] = []
        at = call.end()
        while len(texts) < _PAGE_CALLS[call[1]]:
            literal = _LITERAL.match(source, at)
            if literal is None:
                line = source.count("\n", 0, at) + 1
                raise Incomplete(f"{place}:{line}: {call[1]}() needs its text as it is")
            texts.append("".join(_unquoted(part) for part in _STRING.findall(literal[0])))
            at = literal.end()
        context = texts.pop(0) if "p" in call[1] else None
        yield texts[0] if len(texts) == 1 else tuple(texts), context


def _unquoted(literal: str) -> str:
    """Return the text of a JavaScript string literal."""
    text = re.sub(r"\\(['\"`$])", r"\1", literal[1:-1])
    return text.replace("\\n", "\n").replace("\\\\", "\\")


def _schema_messages(node: object, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _schema_messages(value, f"{at}/{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _schema_messages(value, f"{at}[{index}]")
    elif isinstance(node, str):
        context = next((c for pattern, c in _SCHEMA if pattern.fullmatch(at)), None)
        if context is not None:
            yield node, context


def folder(language: str) -> Path:
    """Return the folder with the catalogs of a language."""
    return LOCALE / language / "LC_MESSAGES"


def written(domain: str, language: str) -> Catalog:
    """Return the catalog in the repository, or an empty one."""
    path = folder(language) / f"{domain}.po"
    if not path.exists():
        return Catalog(locale=language, domain=domain, fuzzy=False)
    with path.open("rb") as file:
        return read_po(file, locale=language, domain=domain)


def updated(domain: str, language: str) -> Catalog:
    """Return the catalog with exactly the messages of the sources; keep translations."""
    catalog, wanted = written(domain, language), template(domain)
    catalog.update(wanted, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    if domain == PAGE:  # shared messages are translated once, for Python
        ours = written(PYTHON, language)
        for _place, message, _context in _shared_messages():
            known = ours.get(message)
            if known is not None:
                catalog[known.id].string = known.string
    catalog.project, catalog.version, catalog.fuzzy = "TFCluster", "1", False
    catalog.creation_date = catalog.revision_date = _CREATED
    catalog.header_comment = "# What TFCluster says, made by `make translations`."
    catalog.last_translator = catalog.language_team = "TFCluster contributors"
    catalog.msgid_bugs_address = ""
    return catalog


def po(catalog: Catalog) -> bytes:
    """Return a catalog as text for translators."""
    out = io.BytesIO()
    write_po(out, catalog, width=100, include_lineno=False, sort_by_file=True)
    return out.getvalue()


def mo(catalog: Catalog) -> bytes:
    """Return a catalog in the format of gettext."""
    out = io.BytesIO()
    write_mo(out, catalog)
    return out.getvalue()


def jed(catalog: Catalog, language: str) -> bytes:
    """Return a catalog in the format of JupyterLab, which needs a hyphen in the language tag."""
    data: dict[str, object] = {
        "": {
            "domain": PAGE,
            "version": "1",
            "language": language.replace("_", "-"),
            "plural_forms": catalog.plural_forms,
        }
    }
    for message in catalog:
        if message.id and is_translated(message):
            one = message.id if isinstance(message.id, str) else message.id[0]
            key = f"{message.context}\x04{one}" if message.context else one
            # JupyterLab ignores a plural with a single form, which Chinese has, so add an empty
            # form.
            alone = not isinstance(message.id, str) and len(forms(message)) == 1
            data[key] = [*forms(message), *([""] if alone else [])]
    return (json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode()


def is_translated(message: Message) -> bool:
    """Return whether every form of a message is translated."""
    return bool(forms(message)) and all(forms(message))


def forms(message: Message) -> list[str]:
    """Return the translation, one text for each plural form."""
    return [message.string] if isinstance(message.string, str) else list(message.string or ())


def files(domain: str, language: str, catalog: Catalog) -> dict[Path, bytes]:
    """Return the content of each file of a catalog."""
    made = {".po": po(catalog), ".mo": mo(catalog)}
    if domain == PAGE:
        made[".json"] = jed(catalog, language)
    return {folder(language) / f"{domain}{suffix}": content for suffix, content in made.items()}


def main(check: bool) -> int:
    """Write changed catalogs, or with `check` report them. Return 1 if a translation is missing."""
    status, unfinished = 0, list[str]()
    shared = {message for _place, message, _context in _shared_messages()}
    for language in LANGUAGES:
        for domain in (PYTHON, PAGE):
            catalog = updated(domain, language)
            for path, content in files(domain, language, catalog).items():
                if not path.exists() or path.read_bytes() != content:
                    print(f"{path.relative_to(ROOT)}: {'out of date' if check else 'written'}")
                    status = 1 if check else status
                    if not check:
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content)
            missing = [message for message in catalog if message.id and not is_translated(message)]
            print(f"{domain} {language}: {len(catalog)} messages, {len(missing)} not translated")
            for message in missing[:20]:
                print(f"  {message.id!r}")
            status = status or int(bool(missing))
            # translations of shared messages are copied from the catalog of Python
            if any(domain == PYTHON or message.id not in shared for message in missing):
                unfinished.append(str((folder(language) / f"{domain}.po").relative_to(ROOT)))
    if unfinished:
        print(f"Write each missing msgstr in {' and '.join(unfinished)}, ", end="")
        print("and run `make translations` again.")
    return status


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
