"""Checks of the pages for readers: links are valid, commands and cells work, and the words are
those of the field.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import yaml
from babel.messages.pofile import read_po
from IPython.core.inputtransformer2 import TransformerManager
from support import doc_pages
from support.doc_pages import Block
from support.project import ROOT
from support.project_tools import tool

from tfcluster_magic import cli
from tfcluster_magic.hub.tenancy.policy import parse_policy as parse_hub_policy
from tfcluster_magic.kube.objects.policy import parse_policy

PAGES = doc_pages.pages()
DOCS = ROOT / "docs"
READ = ("docs/", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
LEARNED = ("docs/tutorial/", "docs/how-to/")
"""Folders of pages whose blocks readers type; each of these blocks needs a mark."""
MARK = re.compile(
    r"(?:tested: (?P<file>tests/[\w/]+\.py)(?:::(?P<test>\w+))?(?: \(raises \w+\))?|not run: \S.+)"
)
PLACEHOLDER = re.compile(r"…|\.\.\.|\b[A-Z]{3,}\b|<[^>]+>")
MAGIC = re.compile(r"^(?:\w+ = )?%{1,2}tfcluster +(\w.*)$")
FIELD_WORDS = {
    r"wish(?:es)?": "options, spec",
    r"deeds?": "action",
    r"levers?": "job control",
    r"ground": "cluster state",
    r"outlook": "status",
    r"crews?": "task group",
    r"nurser(?:y|ies)": "fork server",
    r"(?:a|the|each|last|next) look(?! at)": "cached reading, reading",
    r"in all(?=[.,;:)]|$| and\b)": "in total",
    r"held": "used, reserved",
    r"told": "reported, shown",
}
"""Words that only this project used, and the field's words to write instead."""
LANGUAGES = {"console", "ini", "jinja", "json", "python", "text", "toml", "yaml", ""}


def every_block() -> list[Block]:
    return [
        block
        for page in PAGES
        for block in doc_pages.blocks(page)
        if not block.language.startswith("{")
    ]


BLOCKS = every_block()


def name_of(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


def typed(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command of a console block; pipes and `&&` separate commands."""
    for line in re.sub(r" *\\\n *", " ", block.text).splitlines():
        if not line.startswith(("$ ", "# ")):
            continue
        words: list[str] = []
        for word in (*split(line[2:]), ";"):
            if set(word) <= set("();<>|&"):
                while words and re.fullmatch(r"\w+=.*", words[0]):
                    words.pop(0)
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def split(line: str) -> Iterator[str]:
    """Yield the words of a shell line without its comment."""
    found = shlex.shlex(line, posix=True, punctuation_chars=True)
    found.whitespace_split = True
    yield from found


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the arguments of each `tfcluster` in a block, from a shell or a cell."""
    if block.language == "console":
        for words in typed(block):
            if Path(words[0]).name == "tfcluster":
                yield words[1:]
    elif block.language == "python":
        for line in block.text.splitlines():
            if found := MAGIC.match(line):
                yield shlex.split(found[1], comments=True)


COMMANDS = [(block, words) for block in BLOCKS for words in commands(block)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link is a file of the project, a heading of a page, or a web address."""
    for link in doc_pages.links(page):
        parts = urlsplit(link)
        if parts.scheme:
            assert parts.scheme in ("http", "https", "mailto"), link
            assert parts.netloc or parts.path, link
            continue
        target = (page.parent / parts.path).resolve() if parts.path else page
        assert target.exists(), link
        if parts.fragment and target.suffix == ".md":
            assert parts.fragment in doc_pages.anchors(target), link


@pytest.mark.parametrize("block", [b for b in BLOCKS if str(b).startswith(LEARNED)], ids=name_of)
def test_each_block_is_run_by_a_test_or_says_why_not(block: Block) -> None:
    """Each block that readers type names the test that runs it, or the reason why none does."""
    mark = MARK.fullmatch(block.comment)
    assert mark, f"{block}: write `<!-- tested: FILE::TEST -->` or `<!-- not run: WHY -->` above it"
    if mark["file"]:
        tests = re.findall(r"def (test_\w+)\(", (ROOT / mark["file"]).read_text())
        assert mark["test"] is None or mark["test"] in tests, (
            f"{block}: there is no test {mark['test']} in {mark['file']}"
        )


@pytest.mark.parametrize("block", BLOCKS, ids=name_of)
def test_each_block_is_of_its_language(block: Block) -> None:
    """Each YAML, JSON or Python block is valid, and no block is in a language that is not checked.
    In a console block, each command begins a line.
    """
    assert block.language in LANGUAGES, block.language
    if block.language == "console":
        assert not re.search(r"\S \$ ", block.text)
    if block.language == "yaml":
        assert list(yaml.safe_load_all(block.text))
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "python":
        ast.parse(TransformerManager().transform_cell(block.text))


@pytest.mark.parametrize(
    ("block", "words"), COMMANDS, ids=[f"{name_of(b)}-{' '.join(w)[:40]}" for b, w in COMMANDS]
)
def test_tfcluster_takes_the_commands_on_pages(block: Block, words: list[str]) -> None:
    """The command line accepts the verbs and options on pages; nothing is run."""
    command: click.Command = cli.tfcluster
    context = click.Context(command, info_name="tfcluster")
    words = [word for word in words if word != "…"]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, name
        command, context = found, click.Context(found, info_name=name, parent=context)
    if isinstance(command, click.Group):
        assert words in ([], ["--help"], ["-h"]), words
        return
    if not PLACEHOLDER.search(" ".join(words)) and "--help" not in words:
        command.make_context(context.info_name, words, parent=context.parent)


def words_of_ours(text: str) -> list[str]:
    """Return the words in a text for which the field has a better word; code and values do not
    count.
    """
    plain = re.sub(r"`[^`]*`|\{[^}]*\}|\]\([^)]*\)", " ", text)
    return [
        f"{found[0]!r}: write {instead}"
        for word, instead in FIELD_WORDS.items()
        if (found := re.search(rf"\b{word}(?!\w)", plain, re.IGNORECASE))
    ]


@pytest.mark.parametrize("page", [p for p in PAGES if name_of(p).startswith(READ)], ids=name_of)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    """Pages use the field's words, so readers need no glossary."""
    lines = enumerate(doc_pages.prose(page), 1)
    assert [(number, found) for number, line in lines if (found := words_of_ours(line))] == []


@pytest.mark.parametrize("domain", ["tfcluster_magic", "tfcluster"])
def test_messages_use_the_words_of_the_field(domain: str) -> None:
    """Messages, help and labels use the field's words, too."""
    file = ROOT / "tfcluster_magic" / "locale" / "zh_CN" / "LC_MESSAGES" / f"{domain}.po"
    with file.open("rb") as text:
        ids = [message.id for message in read_po(text)]
    messages = [each for one in ids for each in (one if isinstance(one, tuple) else (one,))]
    assert len(messages) > 500
    assert [(each, found) for each in messages if (found := words_of_ours(each))] == []


def test_make_knows_the_targets_that_pages_name() -> None:
    """If a page says `make WORD`, the Makefile has this target."""
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        words[1]
        for block in BLOCKS
        if block.language == "console"
        for words in typed(block)
        if words[0] == "make" and len(words) > 1
    }
    assert named
    assert named - known == set()


def test_files_that_commands_name_exist() -> None:
    """Every file of the clone that a command on a page names exists."""
    missing = [
        (str(block), word)
        for block in BLOCKS
        if block.language == "console"
        for words in typed(block)
        for word in words[1:]
        if re.match(r"(k8s|tools|tests|examples|hub_config|images)/[\w./-]+$", word)
        and not (ROOT / word).exists()
    ]
    assert missing == []


def test_policies_on_pages_are_accepted() -> None:
    """The hub and the operator accept the policies on pages."""
    hubs = [b for b in BLOCKS if b.language == "yaml" and str(b).startswith("docs/how-to/hub-ten")]
    policies = [block for block in hubs if block.text.startswith(("default:", "groups:"))]
    assert len(policies) >= 3
    for block in policies:
        parse_hub_policy(block.text)
    render = DOCS / "how-to" / "kubernetes-render.md"
    mine = [b for b in doc_pages.blocks(render) if b.text.startswith("# policy.yaml")]
    assert len(mine) == 1
    parse_policy(mine[0].text)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name.endswith(".zh-CN.md")], ids=name_of)
def test_a_translated_page_has_the_blocks_of_the_english_one(page: Path) -> None:
    """Both languages have the same cells and commands, run by the same tests; only the comments in
    them differ.
    """
    english = page.with_name(page.name.replace(".zh-CN", ""))

    def shown(each: Path) -> list[tuple[str, str, str]]:
        return [
            (block.language, re.sub(r"  +#.*", "", block.text), block.comment)
            for block in doc_pages.blocks(each)
        ]

    assert shown(page) == shown(english)


def test_pictures_are_small_and_used() -> None:
    """Each picture in docs/pictures is small, used on a page, and made by `make pictures`."""
    made = tool("pictures")
    found = {path.name for path in made.FOLDER.iterdir()}
    used = {Path(link).name for page in PAGES for link in doc_pages.links(page)}
    assert found == set(made.PICTURES)
    assert found <= used
    assert all(path.stat().st_size <= made.MOST_BYTES for path in made.FOLDER.iterdir())


def test_every_page_stands_in_the_contents() -> None:
    """Each page of docs/ is in the table of contents of its folder and in no other one, and the
    visible part of that page links to it.
    """
    for folder in ("tutorial", "how-to", "reference", "explanation", "explanation/decisions"):
        here = DOCS / folder
        listed = [
            line
            for block in doc_pages.blocks(here / "index.md")
            if block.language == "{toctree}"
            for line in block.text.splitlines()
            if line and not line.startswith(":")
        ]
        found = {page.stem for page in here.glob("*.md")} - {"index"}
        at = f"docs/{folder}/index.md"
        inside = [each for each in listed if "/" not in each]
        assert found - set(inside) == set(), f"add these pages to a toctree of {at}"
        assert sorted(inside) == sorted(found), f"a toctree of {at} names a page twice or wrongly"
        linked = {link.partition("#")[0] for link in doc_pages.links(here / "index.md")}
        assert {f"{page}.md" for page in found} - linked == set(), f"add links to these in {at}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.name.endswith(".zh-CN.md")], ids=name_of)
def test_a_page_and_its_translation_link_to_each_other(page: Path) -> None:
    """Each of the two has a link to the other below its title."""
    english = page.with_name(page.name.replace(".zh-CN", ""))
    for here, other in ((english, page), (page, english)):
        top = "\n".join(here.read_text("utf-8").splitlines()[:8])
        assert f"]({other.name})" in top, f"link to {other.name} below the title of {here}"


WRITTEN = [p for p in PAGES if name_of(p).startswith(READ) and ".zh-CN" not in p.name]


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_lines_have_at_most_100_columns(page: Path) -> None:
    """Text that people write is wrapped. Tables, comments, addresses and generated pages are not
    wrapped.
    """
    text = page.read_text("utf-8")
    lines = [re.sub(r"\]\([^)]*\)", "", line) for line in doc_pages.prose(page)]
    long = [
        number
        for number, line in enumerate(lines, 1)
        if len(line) > 100 and not line.lstrip().startswith(("|", "<!--"))
    ]
    assert long == [] or "This page is generated" in text, f"wrap these lines of {page}"
