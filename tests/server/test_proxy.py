"""The proxied page of a TensorBoard: requests and responses that pass through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.polling import wait_until_async
from support.server.recorder_page import PREFIX, Fetch, Page, echoed, fetch, recorder
from tornado.simple_httpclient import HTTPStreamClosedError

from tfcluster_magic.server.http_forwarding import relocated
from tfcluster_magic.server.service import Service

__all__ = ["fetch", "recorder"]  # fixtures used by the tests below


async def test_a_get_with_a_body_is_answered(fetch: Fetch) -> None:
    """The body of a GET is dropped, together with the headers that give its length."""
    words = {"method": "GET", "body": "x", "allow_nonstandard_methods": True}
    told, headers = echoed(await fetch("/echo", **words))
    assert told["body"] == ""
    assert "content-length" not in headers


async def test_bodies_stream_both_ways(fetch: Fetch, service: Service) -> None:
    """The first piece of a response arrives while the board still writes, and the body of a request
    is forwarded in pieces.
    """
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

    async def arrived() -> bool:
        return bool(json.loads((await fetch("/counts")).body)["got"] >= 100_000)

    async def body(write: Callable[[bytes], Awaitable[None]]) -> None:
        await write(b"x" * 100_000)
        await wait_until_async(arrived, "the first piece arrives")
        await write(b"y")

    words = {"headers": {"Content-Type": "text/plain"}, "request_timeout": 60}
    answer = await fetch("/take", method="POST", body_producer=body, **words)
    assert answer.body == b"100001"


async def test_a_slow_reader_slows_the_board(
    recorder: Page, fetch: Fetch, jp_auth_header: dict[str, str], http_server_port: Any
) -> None:
    """No body is buffered as a whole. If a client reads slowly, the board's sending pauses; other
    clients are still served.
    """
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
    """If a board's response breaks off, the server's response breaks off, too. If the board sends
    no response, the server reports this.
    """
    with pytest.raises(HTTPStreamClosedError):
        await fetch("/half")
    answer = await fetch("/none")
    assert answer.code == 503
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "does not answer" in json.loads(answer.body)["detail"]


async def test_paths_and_queries_cross_as_they_are(fetch: Fetch, recorder: Page) -> None:
    """Paths and queries are not decoded on the way. The path of a page without the final slash
    redirects to the path with the slash.
    """
    for path in ("/data/a%20b%2Fc", "//x/../y", "/echo/%2e%2e/z", "/x?a=1&b=%26", "/%F0%9F%98%80"):
        told, _headers = echoed(await fetch(path))
        assert told["path"] == PREFIX + path
    answer = await fetch("?smoothing=0")
    assert answer.code == 302
    assert answer.headers["Location"] == f"{recorder.base}/?smoothing=0"
    head = await fetch("/echo", method="HEAD")
    assert (head.code, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) > 0


async def test_redirects_stay_below_the_page(fetch: Fetch, recorder: Page) -> None:
    """An absolute redirect of the board is changed so that it leads below the page again, without
    the board's secret.
    """
    for location, there in (
        ("http://127.0.0.1:PORT/a-secret/x?y=1#z", "BASE/x?y=1#z"),
        ("/a-secret/x/", "BASE/x/"),
        ("/a-secret", "BASE/"),
        ("/x", "BASE/x"),
        ("x/y", "x/y"),
        ("../x", "../x"),
        ("https://example.org/a-secret/x", "https://example.org/a-secret/x"),
    ):
        answer = await fetch(f"/redirect?{location.replace('#', '%23')}")
        assert answer.code == 302, location
        assert answer.headers["Location"] == there.replace("BASE", recorder.base)


def test_a_redirect_to_a_folder_of_like_name_is_not_cut() -> None:
    """The board's prefix is removed from a redirect's path only if it is a complete folder name
    there.
    """
    assert relocated("/ab/x", "127.0.0.1", 1, "/a", "/base") == "/base/ab/x"
