"""The hub's pages in the reader's language, tested without a hub."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, PrefixLoader
from jupyterhub._data import DATA_FILES_PATH
from jupyterhub.scopes import describe_raw_scopes, scope_definitions
from tornado.template import Loader
from tornado.web import Application, RequestHandler

from tfcluster_magic import i18n
from tfcluster_magic.hub import proxy
from tfcluster_magic.hub.console.routes.base import PAGES as CONSOLE_PAGES
from tfcluster_magic.hub.page_language import (
    PageTexts,
    page_language,
    script_texts,
    script_words,
)
from tfcluster_magic.hub.shared_settings import PAGES
from tfcluster_magic.hub.spawning import pod_settings
from tfcluster_magic.hub.tenancy.entitlements import Grant, HubPolicy, Image, Size

TEMPLATES, CONSOLE = (sorted(folder.glob("*.html")) for folder in (PAGES, CONSOLE_PAGES))


@pytest.fixture(scope="module")
def pages() -> Environment:
    """JupyterHub's template environment."""
    theirs = FileSystemLoader(str(Path(DATA_FILES_PATH, "templates")))
    own = ChoiceLoader([FileSystemLoader(str(PAGES)), theirs])
    loader = ChoiceLoader([PrefixLoader({"templates": theirs}, "/"), own])
    return Environment(autoescape=True, extensions=[PageTexts], loader=loader)


def shown(pages: Environment, name: str, language: str, **words: object) -> str:
    """Render a template without a signed-in user."""
    with i18n.language(language):
        return pages.get_template(name).render(
            static_url=lambda path, **_words: f"/hub/static/{path}",
            base_url="/hub/",
            prefix="/",
            login_url="/hub/login",
            authenticator=None,
            **words,
        )


def read(html: str) -> str:
    """Return the readable text of a page, without markup, scripts and styles."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", bare).split())


@pytest.mark.parametrize("name", ["login.html", "403.html", "404.html", "503.html", "logout.html"])
def test_a_page_is_all_in_one_language(pages: Environment, name: str) -> None:
    """On a Chinese page, only names and literal input are in English; an English page has no
    Chinese text. The HTML names the page's language.
    """
    words = {"own_machine": True, "own_passwords": True, "status_code": int(name[:3] == "403")}
    html = shown(pages, name, "zh-CN", **words)

    assert '<html lang="zh-CN">' in html
    typed = r"make password|hub\.log|JavaScript|https|notebook|TFCluster|[Hh]ub"
    said = re.sub(typed, "", read(html))
    assert not re.findall(r"[A-Za-z]{2,}", said), said
    english = shown(pages, name, "en", **words)
    assert '<html lang="en">' in english and not re.search("[\u4e00-\u9fff]", english)


ASKED = describe_raw_scopes(
    ("access:servers!server=ada/", "read:users!user", "tokens!group=class", "shutdown"), "bob"
)


@pytest.mark.parametrize("name", ["oauth.html", "accept-share.html"])
def test_what_is_allowed_by_a_button_is_in_the_readers_language(
    pages: Environment, name: str
) -> None:
    """A page that asks for permissions explains them in the reader's language. A scope that only a
    newer JupyterHub has keeps its English text, and names that users chose are escaped.
    """
    words = {
        "scope_descriptions": ASKED,
        "oauth_client": {"description": "<i>App</i>", "redirect_uri": "https://a/back"},
        "owner": {"name": "ada"},
        "user": {"name": "bob", "json_escaped_name": "bob", "spawner": {}},
        "allowed_scopes": ["access:servers!server=ada/"],
    }
    chinese = shown(pages, name, "zh-CN", **words)
    for said in ("笔记本 ada/", "最近活动时间。 仅限您自己的。", "组 class"):
        assert said in read(chinese)
    left = {*re.findall(r"[A-Za-z]{2,}", read(chinese))} - NAMES
    typed = {"hub", "App", "ada", "bob", "class", "https", "back", "JavaScript", "lt", "gt"}
    assert left <= typed | {"Shutdown", "the"}
    english = shown(pages, name, "en", **words)
    assert "Use notebooks. Only: notebook ada/" in read(english)
    assert "<i>App" not in english


def test_a_scope_that_is_named_is_one_of_jupyterhubs() -> None:
    """Every scope that the page translates exists in JupyterHub. Without this check, the page would
    keep the text of a scope that JupyterHub has renamed, although nobody sees this text any more.
    """
    source = (PAGES / "scopes.html").read_text("utf-8")
    named = re.findall(r'"([^"]+)": _\("[A-Z]', source)
    assert len(named) == 20 and {*named} <= {*scope_definitions}


def test_the_form_of_sizes_is_in_the_readers_language() -> None:
    """KubeSpawner's form has only texts of the policy and of TFCluster's catalog."""
    sizes = (Size(name="small"), Size(name="big", cpu=4.0, cpu_limit=8.0, title="Big"))
    policy = HubPolicy(images=(Image(name="tf", image="tf:1"), Image(name="old", image="tf:0")))
    with i18n.language("zh-CN"):
        offered = pod_settings.profiles(policy, Grant(sizes=sizes))
    for profile in offered:  # KubeSpawner adds the field below before it renders the form
        profile["profile_options"]["image"]["unlisted_choice"] = {"enabled": False}
    theirs = Environment(loader=PackageLoader("kubespawner"), autoescape=True)
    form = theirs.get_template("form.html").render(profile_list=offered, user_options={})
    assert "最多 8" in form and "镜像" in form
    assert {*re.findall(r"[A-Za-z]{2,}", read(form))} <= {"small", "Big", "CPU", "Gi", "tf", "old"}


def test_what_is_put_into_a_text_is_escaped(pages: Environment) -> None:
    """The markup of a message is kept, and inserted values are escaped, also in a translation."""
    for language, said in (("en", "You will sign in as"), ("zh-CN", "您将以")):
        html = shown(pages, "set-password.html", language, account="<b>a</b>", least=8, rule="")
        assert f"{said} <strong>&lt;b&gt;a&lt;/b&gt;</strong>" in html


def test_a_cell_magic_in_a_text_is_written_as_it_is_typed(pages: Environment) -> None:
    """The percent sign of a cell magic is doubled in the catalog, but not on the page."""
    server = {"active": False, "pending": "", "what_happened": ""}
    for language in ("en", "zh-CN"):
        html = shown(pages, "home.html", language, default_server=server, parsed_scopes=[])
        assert "<code>%tfcluster --help</code>" in html


NAMES = {"TFCluster", "TensorBoard", "Hub"}
UNREAD = re.compile(
    r"\{#.*?#\}|\{% ?trans.*?endtrans ?%\}|<(script|style)\b.*?</\1>"
    r"|\{\{.*?\}\}|\{%.*?%\}|<[^>]*>|&\w+;",
    re.DOTALL,
)
"""Parts of a template that no reader of the page sees, or that are translated."""


@pytest.mark.parametrize("file", [*TEMPLATES, *CONSOLE], ids=lambda file: file.name)
def test_no_text_of_a_template_stays_english(file: Path) -> None:
    """All visible and spoken texts of a template are marked for translation."""
    source = file.read_text("utf-8")
    assert {*re.findall(r"[A-Za-z]{2,}", UNREAD.sub("", source))} <= NAMES
    heard = re.findall(r"""(?:aria-label|placeholder|alt|title)=["']([^"'{]+)["']""", source)
    # `name` is the first line of a CSV file, which is not translated
    assert {*heard} <= NAMES | {"name"}


def test_scripts_of_the_console_have_their_texts_in_the_readers_language() -> None:
    """The translations that a page gives to its scripts are JSON that cannot end a script element.
    On an English page there are none, because the scripts have the English texts.
    """
    script = """
      t('Stop…'); at('x').text(t(
        'Choose {name}', row
      )); tn('{count} worker', '{count} workers', count); set('no text'); t('it\\'s </script>');
    """
    texts = [
        "Stop…",
        "Choose {name}",
        ("{count} worker", "{count} workers"),
        "it's </script>",
    ]
    assert [*script_texts(script)] == texts
    with i18n.language("en"):
        assert script_words((script,)) == "{}"
    with i18n.language("zh-CN"):
        told = script_words((script,))
    assert "<" not in told
    words = json.loads(told)
    assert words["Stop…"] == "停止…" and words["{count} worker"] == ["{count} 个 worker"] * 2
    assert words["it's </script>"] == "it's </script>"


@pytest.mark.parametrize("file", CONSOLE, ids=lambda file: file.name)
def test_a_page_of_the_console_is_all_in_one_language(file: Path) -> None:
    """On a Chinese page of the console, only names and literal input are in English."""
    given = {
        "nonce": "",
        "prefix": "/tf/services/admin/",
        "hub": "/tf/hub/",
        "title": "Users",
        "bar": [("Users", "/tf/services/admin/users")],
        "user": "",
        "xsrf": "",
        "detail": "",
        "most_bytes": 1,
        "own_passwords": True,
    }
    with i18n.language("zh-CN"):
        words = {"_": i18n._, "language": page_language(), "words": "{}"}
        html = Loader(str(CONSOLE_PAGES)).load(file.name).generate(**given, **words).decode()
    left = {*re.findall(r"[A-Za-z]{2,}", read(html))}
    typed = {"yaml", "policy", "name", "group", "Gi", "JSON", "lines", "CSV", "CPU", "GPU", "UTC"}
    typed |= {"cron", "PVC"}
    assert left <= typed | NAMES | {"hub", "Hub", "notebook", "Kubernetes"}


class Tell(RequestHandler):
    """A handler that answers with the language of its messages, before and after a pause."""

    async def get(self) -> None:
        before = page_language()
        await asyncio.sleep(0)  # lets other requests run
        self.write({"language": [before, page_language()]})


def test_each_request_has_its_own_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request of a connection has its own language; without a header, it has the hub's
    language.
    """
    monkeypatch.setenv(i18n.VARIABLE, "en")

    async def told() -> list[str]:
        server = proxy.ForwardedServer(
            Application([("/.*", Tell)]), route="secret", believed=(), speaks=True
        )
        server.listen(0, "127.0.0.1")
        port = next(iter(server._sockets.values())).getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = []
        for header in ("Accept-Language: zh-CN,en;q=0.5\r\n", "", "Accept-Language: en\r\n"):
            writer.write(f"GET /secret/hub/home HTTP/1.1\r\nHost: hub\r\n{header}\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(re.search(r"Content-Length: (\d+)", head).group(1))  # type: ignore[union-attr]
            before, after = json.loads(await reader.readexactly(length))["language"]
            assert before == after
            found.append(after)
        writer.close()
        server.stop()
        return found

    assert asyncio.run(told()) == ["zh-CN", "en", "en"]
