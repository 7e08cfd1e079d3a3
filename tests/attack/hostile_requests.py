"""Hostile requests: to the hub, its accounts and console, and a notebook with the extension."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any

import websocket
from support.hostile_requests import all_wrong, huge_bodies, unclear_lengths, wrong_bodies
from support.hub.make_run import OWNER
from support.hub.visitor import Visitor

from .cases import Attempt
from .target import Target
from .wire import body, cookies, exchange, request, statuses

EACH = 8
"""Number of requests in one try."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
HUB = (
    *("home", "admin", "token", "spawn", "accounts", "change-password", "api/user", "api/users"),
    *("api/groups", "api/proxy", "api/services", "api/shutdown", "api/accounts"),
    *("api/accounts/links", "api/users/{owner}"),
    *("api/users/{owner}/server", "api/users/{owner}/tokens", "api/users/{owner}/activity"),
)
CONSOLE = (
    *("", "users", "hours", "audit", "api/clusters", "api/clusters/stop", "api/users"),
    *(
        "api/users/import",
        "api/users/links",
        "api/users/servers",
        "api/overrides",
        "api/overrides/{owner}",
    ),
    *("api/hours", "api/hours.csv", "api/audit", "api/archives", "api/storage", "api/leaks"),
)
NOTEBOOK = (
    *("lab", "tree", "api/contents", "api/kernels", "api/sessions", "api/terminals", "files/x"),
    *("api/events/subscribe", "tfcluster/api/clusters", "tfcluster/api/clusters/plan"),
    *("tfcluster/api/clusters/digits", "tfcluster/api/clusters/digits/logs"),
    *(
        f"tfcluster/api/clusters/digits/{verb}"
        for verb in ("note", "tag", "rename", "stop", "rerun")
    ),
    *("tfcluster/api/options", "tfcluster/api/openapi.json", "tfcluster/api/tensorboards"),
    *("tfcluster/tensorboard/0123456789abcdef/", "tfcluster/tensorboard/0123456789abcdef/data/x"),
)
JSON_ROUTES = (
    ("POST", "{own}/tfcluster/api/clusters"),
    ("POST", "{own}/tfcluster/api/clusters/plan"),
    ("POST", "{own}/tfcluster/api/clusters/digits/rerun"),
    ("POST", "{own}/tfcluster/api/clusters/digits/stop"),
    ("POST", "{own}/tfcluster/api/tensorboards"),
    ("POST", "services/admin/api/users/links"),
    ("POST", "hub/api/users"),
    ("POST", "services/admin/api/clusters/stop"),
    ("POST", "services/admin/api/users/import"),
    ("POST", "services/admin/api/users/servers"),
    ("PUT", "services/admin/api/overrides/{owner}"),
    ("POST", "services/admin/api/archives"),
)
FIELDS = (
    *("name", "cell", "program", "arguments", "workers", "ps", "chief", "workerMemory", "grace"),
    *("maxDuration", "spec", "replicas", "folder", "names", "reason", "runs", "csv", "users", "do"),
    *("until", "quota", "user", "kernelspec", "sha256", "options", "resume", "storage", "budget"),
)


# -- requests without rights ----------------------------------------------------------------------


def without_sign_in(target: Target, drawn: random.Random) -> None:
    """A visitor who has not signed in gets only the sign-in page from every server."""
    owner = target.owner
    doors = target.doors
    with target.calm():
        for _ in range(EACH):
            place = drawn.choice((("hub", HUB), ("console", CONSOLE), ("notebook", NOTEBOOK)))
            path = f"{doors[place[0]][1]}/{drawn.choice(place[1])}".replace("{owner}", owner.name)
            door = drawn.choice(("front", place[0]))
            method = drawn.choice(METHODS)
            forged = {"Cookie": f"_xsrf=x; {drawn.choice(COOKIES)}", "X-XSRFToken": "x"}
            sent = request(method, path, drawn.choice(({}, forged)), b"{}" * (method != "GET"))
            _refused(exchange(doors[door][0], sent), f"{method} {path} at {door}", may_lead=True)


COOKIES = (
    "jupyterhub-hub-login=forged",
    'jupyterhub-hub-login="2|1:0|10:1700000000|20:jupyterhub-hub-login|4:eA==|0000"',
    f"jupyterhub-user-{OWNER}=forged; jupyterhub-session-id=forged",
    "service-admin=forged",
)


def _refused(answer: bytes, what: str, may_lead: bool = False) -> None:
    (status,) = statuses(answer) or [0]
    leads = may_lead and status in {301, 302} and b"login" in answer.lower()
    leads |= may_lead and status == 302 and b"/hub/" in answer  # redirected to the sign-in page
    leads |= what.startswith("OPTIONS ") and not body(answer)  # the allowed methods are no secret
    assert leads or 400 <= status < 500, f"{what}: {status} {body(answer)[:200]!r}"


def as_another(target: Target, drawn: random.Random) -> None:
    """A user without rights gets nothing that belongs to the owner, the console or an
    administrator.
    """
    guest, owner = target.guest, target.owner
    mine = ("home", "token", "spawn", "change-password", "api/user")
    theirs = [f"hub/{path}" for path in HUB if path not in mine]
    theirs += [f"services/admin/{path}" for path in CONSOLE]
    theirs += [f"{target.own}/{path}" for path in NOTEBOOK]
    with target.calm():
        for _ in range(EACH):
            path = drawn.choice(theirs).replace("{owner}", owner.name)
            method = drawn.choice(METHODS[:5])
            answer = guest.ask(method, path, json={}, allow_redirects=False)
            leads = answer.status_code == 302 and "/hub/" in answer.headers["Location"]
            refused = 400 <= answer.status_code < 500
            assert refused or leads, f"{method} {path}: {answer.status_code} {answer.text[:200]}"
            if leads:
                end = guest.get(path)
                assert end.status_code in {403, 404}, f"{path}: {end.status_code} {end.url}"


def forged_page(target: Target, drawn: random.Random) -> None:
    """A request with the owner's cookies changes nothing if it lacks the page's token or comes from
    another site.
    """
    owner = target.owner
    guest = target.guest
    tokens = ("", "forged", "2|1:0|10:1700000000|5:_xsrf|4:eA==|0", guest.xsrf("hub/home"))
    for _ in range(EACH):
        method, path = drawn.choice(JSON_ROUTES)
        path = path.format(own=target.own, owner=owner.name)
        headers = {"Content-Type": drawn.choice(("application/json", "text/plain"))}
        if drawn.random() < 0.5:
            headers["X-XSRFToken"] = drawn.choice(tokens)
        else:
            headers |= {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        answer = owner.session.request(
            method, target.url + path, headers=headers, data="{}", timeout=60, allow_redirects=False
        )
        opened = answer.status_code == 302 and "/oauth2/" in answer.headers["Location"]
        refused = answer.status_code in {401, 403} or opened
        assert refused, f"{method} {path} {headers}: {answer.status_code} {answer.text[:200]}"
        assert "Access-Control-Allow-Origin" not in answer.headers


def sockets(target: Target, drawn: random.Random) -> None:
    """No websocket opens for a stranger, a guest, or a page of another site."""
    own = target.own
    kinds = (
        f"{own}/api/events/subscribe",
        f"{own}/api/kernels/0/channels",
        f"{own}/terminals/websocket/1",
    )
    for _ in range(3):
        path = drawn.choice(kinds)
        who = drawn.choice((target.stranger, lambda: target.guest, lambda: target.owner))()
        origin = {"origin": "https://evil.example"} if who is target.owner else {}
        try:
            who.socket(path, redirect_limit=0, **origin).close()
        except websocket.WebSocketBadStatusException as refused:
            # 200: the answer is a page of Jupyter, so no websocket was opened
            page = who is target.owner and refused.status_code == 200
            assert page or 400 <= refused.status_code < 500, f"{path}: {refused.status_code}"
        except websocket.WebSocketException as led:
            assert "Redirect limit" in str(led), led  # the redirect leads to the sign-in page
        else:
            raise AssertionError(f"a websocket opened at {path} for {who.name or 'a stranger'}")


def next_page(target: Target, drawn: random.Random) -> None:
    """No sign-in link sends anybody to another site."""
    ends = ("evil.example", "evil.example/", "evil.example:80/hub", "127.0.0.1@evil.example")
    starts = ("https://", "//", "/\\", "\\\\", "///", "http:", "/..//", "/%09/", "/\t/", "https:\\")
    guest = target.guest
    for _ in range(4):
        following = drawn.choice(starts) + drawn.choice(ends)
        answer = guest.get("hub/login", params={"next": following}, allow_redirects=False)
        location = answer.headers.get("Location", "/")
        local = re.match(r"/(?![/\\])", re.sub(r"[\t\r\n]", "", location))
        assert answer.status_code < 500 and local, f"{following!r}: {location!r}"


# -- invalid requests -----------------------------------------------------------------------------


def traversal(target: Target, drawn: random.Random) -> None:
    """No path leads out of the folder that a server serves."""
    ups = ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "..%252f", "..;/", ".%00./", "....//")
    ends = ("etc/passwd", "etc%2fpasswd", "proc/self/environ", "state/hub/accounts.json")
    below = {
        "hub": ("hub/static/", "hub/logo/", "hub/static/css/"),
        "notebook": ("{own}/files/", "{own}/static/lab/", "{own}/lab/extensions/", "{own}/view/",
                     "{own}/lab/api/settings/", "{own}/tfcluster/api/clusters/",
                     "{own}/tfcluster/tensorboard/0123456789abcdef/", "{own}/static/"),
        "console": ("services/admin/static/", "services/admin/api/archives/"),
    }  # fmt: skip
    doors = target.doors
    with target.calm():
        for _ in range(EACH):
            kind = drawn.choice([*below])
            start = drawn.choice(below[kind]).format(own=target.own)
            path = f"/{start}{drawn.choice(ups) * drawn.randint(1, 12)}{drawn.choice(ends)}"
            headers = cookies(target.owner, f"/{start}")
            door = drawn.choice(("front", kind))
            answer = exchange(doors[door][0], request("GET", path, headers))
            (status,) = statuses(answer) or [0]
            found = [word for word in (b"root:x:", b"TFCLUSTER_", b"scrypt$") if word in answer]
            # Jupyter Server itself answers 500 if its owner asks for a name with a zero byte.
            broken = status >= 500 and "%00" not in path
            assert not broken and not found, f"{path} at {door}: {status} {found}"


def smuggling(target: Target, drawn: random.Random) -> None:
    """No request hides inside another: the next client gets the answer to its own request."""
    token = f"smuggled-{drawn.getrandbits(40):x}"
    hidden = f"GET /hub/{token} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rest: "
    size = len(hidden)
    chunk = f"{size:x}\r\n{hidden}\r\n0\r\n\r\n"
    forms = (
        f"Content-Length: {size + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        f"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{chunk}",
        f"Content-Length: 0\r\nContent-Length: {size}\r\n\r\n{hidden}",
        f"Content-Length: {size}\r\nContent-Length: 0\r\n\r\n{hidden}",
        f"Content-Length: {size}, 0\r\n\r\n{hidden}",
        f"Transfer-Encoding: xchunked\r\nContent-Length: {size}\r\n\r\n{hidden}",
        f"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}",
        f"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{hidden}",
        f"Transfer-Encoding:\tchunked\r\nContent-Length: {size + 5}\r\n\r\n0\r\n\r\n{hidden}",
        f"X: y\nTransfer-Encoding: chunked\r\nContent-Length: {size + 5}\r\n\r\n0\r\n\r\n{hidden}",
        f"Content-Length: +{size}\r\n\r\n{hidden}",
        f"Content_Length: {size}\r\n\r\n{hidden}",
        f"Expect: 100-continue\r\nContent-Length: {size}\r\n\r\n{hidden}",
        f"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n{hidden}",
        f"Transfer-Encoding: chunked\r\n\r\n5;{hidden}\r\nAAAAA\r\n0\r\n\r\n",
        f"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff0\r\n{hidden}",
    )
    for form in drawn.sample(forms, 4):
        head = "POST /hub/login HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        answer = exchange(target.hub.port, (head + form).encode(), quiet=1.0)
        assert not [s for s in statuses(answer) if s >= 500], f"{form!r}: {answer[:200]!r}"
        for _ in range(4):
            seen = target.owner.ask("GET", "hub/api/user")
            right = seen.status_code == 200 and seen.json()["name"] == target.owner.name
            assert right, f"{form!r}: the next one got {seen.status_code} {seen.text[:100]}"


def lengths(target: Target, drawn: random.Random) -> None:
    """A malformed Content-Length is refused and causes no server error."""
    odd = (
        *(
            "-1",
            "+5",
            "1e3",
            "0x10",
            "5, 5",
            "5, 6",
            "5 5",
            "",
            " ",
            "five",
            "\uff11",
            "1_0",
            "5.0",
        ),
        *("99999999999999999999", "9223372036854775808", "0" * 400 + "5", "\x0b5", "5;"),
    )
    doors = target.doors
    with target.calm():
        for _ in range(EACH):
            door, length = drawn.choice([*doors]), drawn.choice(odd)
            path = {"front": "/hub/login", "hub": "/hub/login"}.get(door, doors[door][1] + "/x")
            headers = {"Content-Length": length, **cookies(target.owner, path)}
            answer = exchange(doors[door][0], request("POST", path, headers, b"a=b=c"), quiet=1.0)
            wrong = [status for status in statuses(answer) if status >= 500]
            assert not wrong, f"Content-Length: {length!r} to {path} at {door}: {wrong}"


def kept_bodies(target: Target, drawn: random.Random) -> None:
    """A large body from a visitor who is not signed in is refused before the server has it in
    memory.
    """
    most, block = 64 << 20, bytes(1 << 20)
    doors = target.doors
    door = drawn.choice(("notebook", "console", "hub"))
    path = doors[door][1] + {"notebook": "/tfcluster/api/clusters", "hub": "/login"}.get(
        door, "/api/users/import"
    )
    port, server = doors[door][0], target.listening(door)
    before = server.memory_info().rss
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request("POST", path, {"Content-Length": str(most)}))
        try:
            # The last block is not sent: the server must refuse the request before the body is
            # complete.
            while sent < most - len(block):
                connection.sendall(block)
                sent += len(block)
        except OSError:
            pass  # the connection was closed, as it should be
        grown = server.memory_info().rss - before
    assert grown < 24 << 20, f"{path} at {door}: {sent >> 20} MiB were taken, {grown >> 20} kept"


def head_lines(target: Target, drawn: random.Random) -> None:
    """Unusual headers cause no server error."""
    long = "x" * drawn.choice((1000, 9000, 70_000))
    odd: tuple[tuple[str, str], ...] = (
        ("Cookie", long),
        ("Cookie", "_xsrf=\udcff\udcfe; =; ;;; a=b=c; $Version=1"),
        ("Cookie", "; ".join(f"c{n}={n}" for n in range(2000))),
        ("Authorization", "token \udcff"),
        ("Authorization", "Basic ===="),
        ("Authorization", f"token {long}"),
        ("Accept-Language", "x" * 5000 + ",*;q=nan, zh-CN;q=1e400"),
        ("Accept-Language", "zh_CN;q=" + "9" * 400),
        ("X-Forwarded-For", "999.1.1.1, ::ffff:1, \udcff"),
        ("X-Forwarded-Proto", "javascript"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Scheme", "gopher"),
        ("Host", "evil.example"),
        ("Host", "a b"),
        ("Range", "bytes=-99999999999999999999"),
        ("Range", "bytes=5-1,2-,-"),
        ("If-None-Match", '"' * 3000),
        ("If-Modified-Since", "Thu, 99 Foo 99999 99:99:99 GMT"),
        ("Content-Type", "multipart/form-data; boundary="),
        ("Content-Type", "application/x-www-form-urlencoded; charset=\udcff"),
        ("Content-Encoding", "gzip"),
        ("Expect", "200-maybe"),
    )
    doors = target.doors
    with target.calm():
        for _ in range(EACH):
            door, header = drawn.choice([*doors]), drawn.choice(odd)
            path = doors[door][1] + drawn.choice(("/", "/api/user", "/login", "/static/x"))
            path = path if door != "front" else "/hub/login"
            method = drawn.choice(("GET", "POST"))
            pairs = {**cookies(target.owner, path), header[0]: header[1]}
            answer = exchange(doors[door][0], request(method, path, pairs, b"a=b"), quiet=2.0)
            wrong = [status for status in statuses(answer) if status >= 500]
            assert not wrong, (
                f"{header[0]}: {header[1][:60]!r} to {method} {path} at {door}: {wrong}"
            )


def addresses(target: Target, drawn: random.Random) -> None:
    """Paths and queries that are not valid UTF-8 cause no server error."""
    odd = (
        *("%", "%zz", "%00", "%ff%fe", "%ed%a0%80", "%0d%0aX-Injected:%201", "%1b%5b31m"),
        *("\udcff", "a" * 20_000, "%25" * 500, "[[[", "{0.__class__}", "%s%n", "'\"><script>"),
    )
    doors = target.doors
    routes = {
        "hub": ("/login?next={}", "/set-password?code={}", "/user-redirect/{}", "/{}", "/error/{}"),
        "console": ("/api/users?q={}&limit={}", "/api/hours?by={}", "/api/audit?q={}", "/{}"),
        "notebook": ("/tfcluster/api/clusters/{}", "/tfcluster/api/clusters/x/logs?tail={}&task={}",
                     "/tfcluster/api/clusters?all={}", "/tfcluster/tensorboard/{}", "/{}",
                     "/tfcluster/tensorboard/0123456789abcdef/{}"),
    }  # fmt: skip
    with target.calm():
        for _ in range(EACH):
            kind = drawn.choice([*routes])
            path = doors[kind][1] + drawn.choice(routes[kind]).replace("{}", drawn.choice(odd))
            method = drawn.choice(("GET", "GET", "POST", "DELETE"))
            headers = cookies(target.owner, doors[kind][1] + "/")
            # Send escaped paths to the server directly: if a path is not valid UTF-8, the proxy
            # itself answers 500 and does not forward the request.
            door = drawn.choice(("front", kind)) if "%" not in path else kind
            answer = exchange(doors[door][0], request(method, path, headers), quiet=2.0)
            wrong = [status for status in statuses(answer) if status >= 500]
            assert not wrong, f"{method} {path[:120]!r} at {door}: {wrong}"
            assert b"\r\nX-Injected:" not in answer, f"{path!r} writes a header"


def verbs(target: Target, drawn: random.Random) -> None:
    """Unknown methods are refused."""
    odd = ("TRACE", "CONNECT", "PROPFIND", "get", "GET\x00", "X" * 3000, "", "POST GET", "DEBUG")
    doors = target.doors
    with target.calm():
        for _ in range(EACH):
            door, method = drawn.choice([*doors]), drawn.choice(odd)
            path = doors[door][1] + drawn.choice(("/", "/api/user", "/tfcluster/api/clusters"))
            sent = request(method, path, cookies(target.owner, path))
            answer = exchange(doors[door][0], sent, quiet=1.0)
            wrong = [status for status in statuses(answer) if status >= 500 and status != 501]
            assert not wrong, f"{method[:20]!r} {path} at {door}: {wrong}"
            assert b"X-XSRFToken" not in body(answer), "TRACE tells what was sent"


# -- invalid JSON ---------------------------------------------------------------------------------


def _ask(target: Target, drawn: random.Random, text: str | bytes, what: str) -> None:
    """Send a body to one of the routes; check that the answer is a refusal in JSON."""
    method, path = drawn.choice(JSON_ROUTES)
    path = path.format(own=target.own, owner=target.owner.name)
    owner = target.owner
    headers = {"Content-Type": "application/json", "Sec-Fetch-Mode": "cors"}
    if path.startswith("services"):
        headers["X-XSRFToken"] = _console_token(owner)
    answer = owner.ask(method, path, data=text, headers=headers)
    told = f"{what} to {method} {path}: {answer.status_code} {answer.text[:200]}"
    assert 400 <= answer.status_code < 500, told
    assert "json" in answer.headers["Content-Type"], told
    try:
        json.loads(answer.text, parse_constant=_not_json)
    except ValueError as error:
        raise AssertionError(f"{told}: {error}") from None


def _console_token(owner: Visitor) -> str:
    found = re.search(r'data-xsrf="([^"]*)"', owner.get("services/admin/").text)
    assert found, "the console has no page"
    return found.group(1)


def _not_json(constant: str) -> float:
    raise ValueError(f"the answer has {constant}")


def numbers(target: Target, drawn: random.Random) -> None:
    """Infinite and huge numbers are refused, and the refusal is JSON."""
    odd = (
        "1e400",
        "-1e400",
        "NaN",
        "-Infinity",
        "9" * 5000,
        "1e-400",
        "-0",
        "1E+9999",
        "0x10",
        "1" * 30,
    )
    with target.calm():
        for _ in range(EACH):
            number = drawn.choice(odd)
            fields = drawn.sample(FIELDS, 4)
            text = ", ".join(f'"{name}": {number}' for name in fields)
            _ask(target, drawn, f'{{"no such field": {number}, {text}}}', number[:12])


def depth(target: Target, drawn: random.Random) -> None:
    """JSON nested as deeply as a body allows is refused everywhere."""
    deep = drawn.choice((900, 5000, 100_000))
    forms = (
        "[" * deep + "]" * deep,
        "[" * deep,
        '{"a":' * deep + "1" + "}" * deep,
        f'{{"{drawn.choice(FIELDS)}": {"[" * deep}{"]" * deep}, "no such field": 1}}',
    )
    with target.calm():
        for form in forms:
            _ask(target, drawn, form, f"{form[:14]}… {deep} deep")


def types(target: Target, drawn: random.Random) -> None:
    """Values of the wrong types are refused in every field."""
    with target.calm():
        for _ in range(EACH):
            made = {name: _value(drawn, 3) for name in drawn.sample(FIELDS, 5)}
            text = json.dumps({**made, "no such field": 1})
            _ask(target, drawn, text, text[:80])


def options(target: Target, drawn: random.Random) -> None:
    """Launch options with values of the wrong types cause no server error, and the answer is valid
    JSON.
    """
    owner, base = target.owner, f"{target.own}/tfcluster/api"
    keys = sorted(set(re.findall(r'"key": ?"(\w+)"', owner.get(f"{base}/options").text)))
    assert keys, "there are no options"
    with target.calm():
        for _ in range(EACH):
            picked = {key: _value(drawn, 2) for key in drawn.sample(keys, 3)}
            text = json.dumps({"cell": "pass", "options": picked}).replace("1e+308", "1e999")
            answer = owner.ask("POST", f"{base}/clusters/plan", data=text)
            told = f"{text[:300]}: {answer.status_code} {answer.text[:200]}"
            assert answer.status_code == 200 or 400 <= answer.status_code < 500, told
            try:
                json.loads(answer.text, parse_constant=_not_json)
            except ValueError as error:
                raise AssertionError(f"{told}: {error}") from None


def _value(drawn: random.Random, levels: int) -> Any:
    texts = ("", " ", "\x00", "\x1b]0;x\x07", "../..", "\ud800", "a" * 3000, "-1", "\u0661", "null")
    plain: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: drawn.choice((True, False)),
        lambda: drawn.choice((0, -1, 2**63, -(2**64), 10**30, 0.1, 1e308)),
        lambda: drawn.choice(texts),
    )
    nested: tuple[Callable[[], Any], ...] = (
        lambda: [_value(drawn, levels - 1) for _ in range(drawn.randint(0, 3))],
        lambda: {drawn.choice((*texts, *FIELDS)): _value(drawn, levels - 1) for _ in range(3)},
    )
    return drawn.choice((*plain, *nested) if levels else plain)()


def not_json(target: Target, drawn: random.Random) -> None:
    """Bytes that are not JSON are refused."""
    odd = (b"", b"\xff\xfe{\x00", b"{", b"nul", b'{"a":1}}', b"\x00" * 100, b"[]", b'"text"', b"1")
    broken = '{"cell": "\udcff"}'.encode("utf-8", "surrogateescape")
    with target.calm():
        for _ in range(EACH):
            text = drawn.choice((*odd[1:], broken))
            _ask(target, drawn, text, repr(text[:20]))


def framings(target: Target, drawn: random.Random) -> None:
    """Huge bodies, bodies without a clear length and bodies that are not JSON are refused
    unread.
    """
    del drawn  # unused, because each try sends every framing
    path = "/tfcluster/api/clusters"
    port, base = target.doors["notebook"]
    attacks = [*unclear_lengths("POST", path), *wrong_bodies("POST", path)]
    attacks += huge_bodies("POST", path, frozenset({413}), signed_in=True)
    attacks += huge_bodies("POST", path, frozenset({403}), signed_in=False)
    with target.calm():
        where, known = ("127.0.0.1", port), cookies(target.owner, f"{base}{path}")
        found = all_wrong(where, attacks, base, known)
        assert not found, "; ".join(found)


def large_csv(target: Target, drawn: random.Random) -> None:
    """A class list that is far too long is refused with the console's own error in JSON."""
    rows = "".join(f"user{n},{'x' * drawn.randint(20, 40)}\n" for n in range(70_000))
    body = json.dumps({"csv": f"name,group\n{rows}", "dryRun": True})
    headers = {"X-XSRFToken": _console_token(target.owner), "Sec-Fetch-Mode": "cors"}
    with target.calm():
        answer = target.owner.ask(
            "POST", "services/admin/api/users/import", data=body, headers=headers
        )
        told = f"{len(body) >> 20} MiB: {answer.status_code} {answer.text[:200]}"
        assert 400 <= answer.status_code < 500, told
        kind = answer.headers.get("Content-Type", "")
        assert kind.startswith("application/problem+json"), told


CASES: Mapping[str, Attempt] = {
    "without-sign-in": without_sign_in,
    "as-another": as_another,
    "forged-page": forged_page,
    "websockets": sockets,
    "next-page": next_page,
    "traversal": traversal,
    "smuggling": smuggling,
    "content-length": lengths,
    "huge-bodies": kept_bodies,
    "framings": framings,
    "headers": head_lines,
    "addresses": addresses,
    "methods": verbs,
    "json-numbers": numbers,
    "json-depth": depth,
    "json-types": types,
    "launch-options": options,
    "not-json": not_json,
    "large-csv": large_csv,
}
