"""The proxied page of a TensorBoard: headers that do not pass, and clients that are refused."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from support.server.recorder_page import PREFIX, Fetch, Page, echoed, fetch, recorder

__all__ = ["fetch", "recorder"]  # fixtures used by the tests below


@pytest.fixture
def cookies(
    http_server_client: Any, jp_serverapp: Any, jp_base_url: str, jp_asyncio_loop: Any
) -> dict[str, str]:
    """Return the headers of a browser that has signed in: cookies, but no token."""
    token = jp_serverapp.identity_provider.token
    url = f"{jp_base_url}api/status?token={token}"
    answer = jp_asyncio_loop.run_until_complete(http_server_client.fetch(url))
    pairs = [c.partition(";")[0] for c in answer.headers.get_list("Set-Cookie")]
    assert pairs
    return {"Cookie": "; ".join(pairs)}


async def test_no_credentials_reach_the_board(fetch: Fetch, cookies: dict[str, str]) -> None:
    """Cookies, tokens, XSRF tokens, the host header and the hub's headers are not forwarded; other
    headers are.
    """
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
    """Cookies and permissions that a board sends are dropped, and its content security policy is
    only added to the server's policy.
    """
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
    """Without a token, a page redirects to the login, and data is refused."""
    for path in ("/", "/echo"):
        answer = await fetch(path, plain=True)
        assert answer.code == 302
        assert "/login" in answer.headers["Location"]
    assert (await fetch("/echo", plain=True, method="POST", body="x")).code == 403
    assert (await fetch("/echo", method="PUT", body="x")).code == 405
    assert echoed(await fetch("/echo"))[0]["path"].startswith(PREFIX)


@pytest.mark.parametrize(("site", "refused"), [("cross-site", True), ("same-origin", False)])
async def test_a_connection_that_ends_says_so(
    cookies: dict[str, str], recorder: Page, http_server_port: Any, site: str, refused: bool
) -> None:
    """A refusal that comes before the body was read closes the connection, so that no proxy reuses
    it.
    """
    port = http_server_port[-1]
    head = f"POST {recorder.base}/echo HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    head += f"Cookie: {cookies['Cookie']}\r\nSec-Fetch-Site: {site}\r\nContent-Length: 3\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _time in range(1 if refused else 2):
        writer.write(f"{head}a=1".encode())
        told = await reader.readuntil(b"\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 403" if refused else b"HTTP/1.1 200")
        assert (b"\r\nConnection: close\r\n" in told) is refused
        size = re.search(rb"\r\nContent-Length: (\d+)\r\n", told)
        await reader.readexactly(int(size[1])) if size else await reader.readuntil(b"0\r\n\r\n")
    assert not refused or await reader.read() == b""
    writer.close()


async def test_posts_of_other_sites_are_refused(fetch: Fetch, cookies: dict[str, str]) -> None:
    """A POST with cookies needs the header by which the browser says that it comes from a page of
    this server.
    """
    words = {"plain": True, "method": "POST", "body": "a=1"}
    cases: list[tuple[dict[str, str], int]] = [
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({}, 403),
    ]
    for headers, code in cases:
        answer = await fetch("/echo", headers={**cookies, **headers}, **words)
        assert answer.code == code, headers
        if code == 200:
            told, seen = echoed(answer)
            assert (told["body"], "cookie" in seen) == ("a=1", False)


async def test_pages_of_other_sites_may_only_lead_here(
    fetch: Fetch, cookies: dict[str, str]
) -> None:
    """Another site can link to a board, but neither embed it nor read its content."""
    cases: list[tuple[dict[str, str], bool]] = [
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, True),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
        ({}, False),
    ]
    for path in ("/", "/echo", ""):
        for headers, refused in cases:
            answer = await fetch(path, plain=True, headers={**cookies, **headers})
            expected = 403 if refused else 200 if path else 302
            assert answer.code == expected, (path, headers)


async def test_a_token_in_the_url_stays_here(
    fetch: Fetch, recorder: Page, jp_serverapp: Any
) -> None:
    """The server's token is neither sent to the board nor kept in the address of its page."""
    token = jp_serverapp.identity_provider.token
    for query in (f"?token={token}&run=a%2Fb", f"?run=a%2Fb&_xsrf=x&token={token}"):
        told, _headers = echoed(await fetch(f"/echo{query}", plain=True))
        assert told["path"] == f"{PREFIX}/echo?run=a%2Fb"
        answer = await fetch(query, plain=True)
        assert answer.headers["Location"] == f"{recorder.base}/?run=a%2Fb"
    told, _headers = echoed(await fetch(f"/echo?token={token}", plain=True))
    assert told["path"] == f"{PREFIX}/echo"


async def test_post_from_our_origin_without_fetch_metadata(
    fetch: Fetch, cookies: dict[str, str], jp_serverapp: Any, http_server_port: Any
) -> None:
    """Over plain HTTP, browsers send no `Sec-Fetch-Site`; then the `Origin` header is enough."""
    ours = {"Origin": f"http://127.0.0.1:{http_server_port[-1]}"}
    ours["Host"] = ours["Origin"].removeprefix("http://")
    words = {"plain": True, "method": "POST", "body": "a=1"}
    assert (await fetch("/echo", headers={**cookies, **ours}, **words)).code == 200


async def test_only_known_boards_are_reached(jp_fetch: Fetch) -> None:
    """An unknown or invalid id of a board is answered with 404."""
    for there in (f"{'0' * 16}/index.html", "127.0.0.1:22/x", f"{'x' * 16}/x", "0/x"):
        answer = await jp_fetch("tfcluster", "tensorboard", there, raise_error=False)
        assert answer.code == 404
    answer = await jp_fetch("tfcluster", "tensorboard", f"{'0' * 16}/", raise_error=False)
    assert answer.code == 404  # answered at once, because no board is started
    assert 'role="alert"' in answer.body.decode()
    assert "open it again from the list of runs" in answer.body.decode()
