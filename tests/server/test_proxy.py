"""The page of a TensorBoard below the server: what crosses to it and back, and what does not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPResponse
from tornado.simple_httpclient import HTTPStreamClosedError

from tfcluster_magic.server.forward import relocated
from tfcluster_magic.server.service import Service
from tfcluster_magic.tensorboard_registry import Entry, registry

RECORDER = Path(__file__).with_name("recorder.py")
PREFIX = "/a-secret"
Fetch = Callable[..., Awaitable[HTTPResponse]]


@dataclass
class Page:
    """The page of the recorder: its address in the server."""

    id: str
    base: str


@pytest.fixture
def recorder(
    service: Service, jp_root_dir: Path, jp_base_url: str, own_folders: Path
) -> Iterator[Page]:
    """A server that tells what reached it, registered as the board on a folder."""
    folder = jp_root_dir / "logs"
    folder.mkdir()
    file = Entry(registry(None), str(folder)).file("json")
    words = [sys.executable, str(RECORDER), str(file), str(folder), PREFIX]
    with subprocess.Popen(words) as process:
        deadline = time.monotonic() + 90
        while not file.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        view = service.manager.boards.folder_view(str(folder), "logs")
        yield Page(view.id, f"{jp_base_url}tfcluster/tensorboard/{view.id}")
        process.kill()


@pytest.fixture
def fetch(http_server_client: Any, jp_auth_header: dict[str, str], recorder: Page) -> Fetch:
    """Asks for a path of the recorder's page, with the server's token unless `plain`."""

    async def ask(path: str = "/", plain: bool = False, **words: Any) -> HTTPResponse:
        headers = ({} if plain else jp_auth_header) | words.pop("headers", {})
        words = {"raise_error": False, "follow_redirects": False, **words}
        return await http_server_client.fetch(f"{recorder.base}{path}", headers=headers, **words)

    return ask


def echoed(answer: HTTPResponse) -> tuple[dict[str, Any], dict[str, str]]:
    """What reached the recorder, and its headers by lower-case name."""
    assert answer.code == 200, answer.body
    told = json.loads(answer.body)
    return told, {name.lower(): value for name, value in told["headers"]}


@pytest.fixture
def cookies(
    http_server_client: Any, jp_serverapp: Any, jp_base_url: str, jp_asyncio_loop: Any
) -> dict[str, str]:
    """Headers of a browser that has signed in: cookies, and no token."""
    token = jp_serverapp.identity_provider.token
    url = f"{jp_base_url}api/status?token={token}"
    answer = jp_asyncio_loop.run_until_complete(http_server_client.fetch(url))
    pairs = [c.partition(";")[0] for c in answer.headers.get_list("Set-Cookie")]
    assert pairs
    return {"Cookie": "; ".join(pairs)}


async def test_no_credentials_reach_the_board(fetch: Fetch, cookies: dict[str, str]) -> None:
    """Cookies, tokens, XSRF tokens, the host and the hub's headers stay here; the rest crosses."""
    sent = {
        **cookies,
        "X-XSRFToken": "secret",
        "Origin": "http://elsewhere",
        "Referer": "http://127.0.0.1/lab?token=secret",
        "X-Forwarded-For": "10.0.0.1",
        "X-Forwarded-User": "ada",
        "Proxy-Authorization": "secret",
        "Accept": "application/json",
        "Range": "bytes=1-2",
        "TE": "trailers",
        "Upgrade": "h2c",
    }
    told, headers = echoed(await fetch("/data/x?run=a%2Fb&tokens=", headers=sent))
    assert told["path"] == f"{PREFIX}/data/x?run=a%2Fb&tokens="
    assert headers["accept"] == "application/json"
    assert headers["range"] == "bytes=1-2"
    assert headers["host"].startswith("127.0.0.1:")
    allowed = {"accept", "accept-encoding", "range", "host", "connection", "user-agent"}
    assert set(headers) <= allowed
    assert "secret" not in json.dumps({**headers, "path": ""})


async def test_nothing_of_the_board_speaks_for_the_origin(fetch: Fetch) -> None:
    """Cookies and rights that a board sends are dropped; its policy only adds to ours."""
    answer = await fetch("/greedy")
    assert answer.body == b"x"
    assert answer.headers["ETag"] == '"tag"'
    policies = answer.headers.get_list("Content-Security-Policy")
    assert policies == ["frame-ancestors 'self'", "default-src of-the-board"]
    for name in ("x-frame-options", "clear-site-data", "service-worker-allowed", "x-hop"):
        assert name not in answer.headers
    rest = [h for h in answer.headers.get_all() if h[0] != "Content-Security-Policy"]
    assert "of-the-board" not in str(rest)


async def test_only_a_signed_in_user_gets_there(fetch: Fetch, recorder: Page) -> None:
    """Without a token a page leads to the login, and data are refused."""
    for path in ("/", "/echo"):
        answer = await fetch(path, plain=True)
        assert answer.code == 302
        assert "/login" in answer.headers["Location"]
    assert (await fetch("/echo", plain=True, method="POST", body="x")).code == 403
    assert (await fetch("/echo", method="PUT", body="x")).code == 405
    assert echoed(await fetch("/echo"))[0]["path"].startswith(PREFIX)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({}, 403),
    ],
)
async def test_posts_of_other_sites_are_refused(
    fetch: Fetch, cookies: dict[str, str], headers: dict[str, str], code: int
) -> None:
    """A POST by cookie needs the browser's word that it comes from our own page."""
    words = {"plain": True, "method": "POST", "body": "a=1"}
    answer = await fetch("/echo", headers={**cookies, **headers}, **words)
    assert answer.code == code
    if code == 200:
        told, seen = echoed(answer)
        assert (told["body"], "cookie" in seen) == ("a=1", False)


@pytest.mark.parametrize("path", ["/", "/echo", ""])
@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, True),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
        ({}, False),
    ],
)
async def test_pages_of_other_sites_may_only_lead_here(
    fetch: Fetch, cookies: dict[str, str], path: str, headers: dict[str, str], refused: bool
) -> None:
    """Another site may link to a board, and neither embed nor read what it shows."""
    answer = await fetch(path, plain=True, headers={**cookies, **headers})
    assert answer.code == (403 if refused else 200 if path else 302)


async def test_a_token_in_the_url_stays_here(
    fetch: Fetch, recorder: Page, jp_serverapp: Any
) -> None:
    """What opens the server is not told to the board, nor kept in the address of its page."""
    token = jp_serverapp.identity_provider.token
    for query in (f"?token={token}&run=a%2Fb", f"?run=a%2Fb&_xsrf=x&token={token}"):
        told, _headers = echoed(await fetch(f"/echo{query}", plain=True))
        assert told["path"] == f"{PREFIX}/echo?run=a%2Fb"
        answer = await fetch(query, plain=True)
        assert answer.headers["Location"] == f"{recorder.base}/?run=a%2Fb"
    told, _headers = echoed(await fetch(f"/echo?token={token}", plain=True))
    assert told["path"] == f"{PREFIX}/echo"


async def test_a_get_with_a_body_is_answered(fetch: Fetch) -> None:
    """A body where none belongs is dropped, with what says how long it is."""
    words = {"method": "GET", "body": "x", "allow_nonstandard_methods": True}
    told, headers = echoed(await fetch("/echo", **words))
    assert told["body"] == ""
    assert "content-length" not in headers


async def test_post_from_our_origin_without_fetch_metadata(
    fetch: Fetch, cookies: dict[str, str], jp_serverapp: Any, http_server_port: Any
) -> None:
    """Browsers say nothing of sites to plain http; the origin that they name is enough."""
    ours = {"Origin": f"http://127.0.0.1:{http_server_port[-1]}"}
    ours["Host"] = ours["Origin"].removeprefix("http://")
    words = {"plain": True, "method": "POST", "body": "a=1"}
    assert (await fetch("/echo", headers={**cookies, **ours}, **words)).code == 200


async def test_bodies_stream_both_ways(fetch: Fetch, service: Service) -> None:
    """The first piece arrives while the board still writes, and a body goes on as it comes."""
    first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    got: list[bytes] = []

    def piece(chunk: bytes) -> None:
        got.append(chunk)
        if not first.done():
            first.set_result(chunk)

    answer = asyncio.ensure_future(fetch("/slow", streaming_callback=piece))
    assert await asyncio.wait_for(first, 90) == b"first"
    assert not answer.done()
    await fetch("/go")
    assert (await answer).code == 200
    assert b"".join(got) == b"firstsecond"

    async def body(write: Callable[[bytes], Awaitable[None]]) -> None:
        await write(b"x" * 100_000)
        deadline = time.monotonic() + 90
        while json.loads((await fetch("/counts")).body)["got"] < 100_000:
            assert time.monotonic() < deadline, "the first piece does not arrive"
            await asyncio.sleep(0.02)
        await write(b"y")

    words = {"headers": {"Content-Type": "text/plain"}, "request_timeout": 60}
    answer = await fetch("/take", method="POST", body_producer=body, **words)
    assert answer.body == b"100001"


async def test_a_slow_reader_slows_the_board(
    recorder: Page, fetch: Fetch, jp_auth_header: dict[str, str], http_server_port: Any
) -> None:
    """A body is never held as a whole, and one that nobody reads stops; others are still served."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http_server_port[-1])
    head = f"GET {recorder.base}/big?400 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    writer.write(f"{head}Authorization: {jp_auth_header['Authorization']}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    before = -1
    while before != (sent := json.loads((await fetch("/counts")).body)["sent"]):
        before = sent
        await asyncio.sleep(0.3)
    assert sent < 100 << 20
    writer.close()
    await asyncio.wait_for(writer.wait_closed(), 90)


async def test_parts_never_look_like_the_whole(fetch: Fetch) -> None:
    """A board that ends in the middle of an answer breaks ours off; one without any is told."""
    with pytest.raises(HTTPStreamClosedError):
        await fetch("/half")
    answer = await fetch("/none")
    assert answer.code == 503
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "does not answer" in json.loads(answer.body)["detail"]


async def test_paths_and_queries_cross_as_they_are(fetch: Fetch, recorder: Page) -> None:
    """Nothing is decoded on the way; without its slash the page is redirected to it."""
    for path in ("/data/a%20b%2Fc", "//x/../y", "/echo/%2e%2e/z", "/x?a=1&b=%26", "/%F0%9F%98%80"):
        told, _headers = echoed(await fetch(path))
        assert told["path"] == PREFIX + path
    answer = await fetch("?smoothing=0")
    assert answer.code == 302
    assert answer.headers["Location"] == f"{recorder.base}/?smoothing=0"
    head = await fetch("/echo", method="HEAD")
    assert (head.code, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    ("location", "there"),
    [
        ("http://127.0.0.1:PORT/a-secret/x?y=1#z", "BASE/x?y=1#z"),
        ("/a-secret/x/", "BASE/x/"),
        ("/a-secret", "BASE/"),
        ("/x", "BASE/x"),
        ("x/y", "x/y"),
        ("../x", "../x"),
        ("https://example.org/a-secret/x", "https://example.org/a-secret/x"),
    ],
)
async def test_redirects_stay_below_the_page(
    fetch: Fetch, recorder: Page, location: str, there: str
) -> None:
    """An absolute redirect of the board leads below the page again, and its secret stays here."""
    answer = await fetch(f"/redirect?{location.replace('#', '%23')}")
    assert answer.code == 302
    assert answer.headers["Location"] == there.replace("BASE", recorder.base)


def test_a_redirect_to_a_folder_of_like_name_is_not_cut() -> None:
    """Only the whole prefix counts."""
    assert relocated("/ab/x", "127.0.0.1", 1, "/a", "/base") == "/base/ab/x"


async def test_only_known_boards_are_reached(jp_fetch: Fetch) -> None:
    """An id that nobody opened, and what is no id, lead nowhere."""
    for there in (f"{'0' * 16}/index.html", "127.0.0.1:22/x", f"{'x' * 16}/x", "0/x"):
        answer = await jp_fetch("tfcluster", "tensorboard", there, raise_error=False)
        assert answer.code == 404
    answer = await jp_fetch("tfcluster", "tensorboard", f"{'0' * 16}/", raise_error=False)
    assert answer.code == 404  # at once: nothing is started
    assert 'role="alert"' in answer.body.decode()
    assert "open it again from the list of runs" in answer.body.decode()
