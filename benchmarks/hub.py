"""The response times of the hub while a whole class signs in, compared with a plain JupyterHub with
its dummy authenticator.

Both hubs have the same proxy, database and number of users on this machine. The difference is the
product's configuration, including real password hashing.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlencode, urlsplit

import requests
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse

from tests.support.hub.real_hub import RealHub
from tfcluster_magic.hub.auth import FILE, accounts
from tfcluster_magic.hub.auth.accounts import AccountStore

from .processes import pss_mib
from .rows import Row, bounded

KNOWN, SIGN_INS, SPAWNS, WITHIN = 500, 100, 40, 60.0
PASSWORD = "one password for all"
DUMMY = """
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
"""
COMMON = """
c.JupyterHub.concurrent_spawn_limit = 100
c.JupyterHub.services = [{{"name": "bench", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "bench", "services": ["bench"], "scopes": ["admin:users", "servers", "list:users"]}}
]
"""


@dataclass
class Times:
    """The durations of all requests to the hub, in seconds, and the errors."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def p95(self) -> float:
        """The 95th percentile of the durations, in seconds."""
        return quantiles(self.seconds, n=20)[-1]


def sign_ins(quick: bool) -> list[Row]:
    """Measure the hub while 100 of its 500 users sign in within a minute, and then while 40
    notebooks start.
    """
    known, count, spawns = (60, 20, 2) if quick else (KNOWN, SIGN_INS, SPAWNS)
    plain, beside = asyncio.run(_measured(False, known, count, 0))
    ours, memory = asyncio.run(_measured(True, known, count, spawns))
    note = f"{known} known, {count} sign-ins and {spawns} notebooks, each within {WITHIN:.0f} s"
    wrong = ours.errors + plain.errors
    return [
        bounded("hub_p95", "s (p95)", [ours.p95], at_most=1.0, baseline=[plain.p95], note=note),
        bounded(
            "hub_memory",
            "MiB",
            [memory],
            at_most=300.0,
            baseline=[beside],
            note="the process of the hub; plain JupyterHub without notebooks",
        ),
        bounded("hub_errors", "answers", [len(wrong)], at_most=0.0, note="; ".join(wrong[:3])),
    ]


async def _measured(ours: bool, known: int, count: int, spawns: int) -> tuple[Times, float]:
    """Return the response times of the hub, and its memory in MiB at the end."""
    times = Times()
    AsyncHTTPClient.configure(None, max_clients=200)
    with _hub(ours, known) as (hub, token):
        assert hub.process
        people = [f"person{number}" for number in range(count)]
        step = WITHIN / count
        jobs = [_come(hub, name, at * step, times) for at, name in enumerate(people)]
        await asyncio.gather(*jobs)
        step = WITHIN / max(1, spawns)
        jobs = [
            _start(hub, token, name, at * step, times) for at, name in enumerate(people[:spawns])
        ]
        await asyncio.gather(*jobs)
        return times, pss_mib([hub.process.pid])


@contextmanager
def _hub(ours: bool, known: int) -> Iterator[tuple[RealHub, str]]:
    token = secrets.token_hex(16)
    more = COMMON.format(token=token) + ("" if ours else DUMMY.format(password=PASSWORD))
    with tempfile.TemporaryDirectory(prefix="tfcluster-bench-hub-") as folder:
        hub = RealHub(Path(folder, "hub"), more=more)
        people = [f"person{number}" for number in range(known)]
        store, hashed = AccountStore(hub.state / FILE), accounts.hash_password(PASSWORD)
        for name in people if ours else ():
            store.redeem(store.invite(name), hashed)
        try:
            hub.start()
            made = requests.post(
                f"{hub.url}hub/api/users",
                headers={"Authorization": f"token {token}"},
                json={"usernames": people},
                timeout=300,
            )
            made.raise_for_status()
            yield hub, token
        finally:
            hub.close()


async def _come(hub: RealHub, name: str, after: float, times: Times) -> None:
    """Open the page, sign in, and open the hub's home page, as a browser does."""
    await asyncio.sleep(after)  # users arrive one after another
    cookies: dict[str, str] = {}
    page = await _asked(hub, "hub/login", times, cookies)
    words = {"username": name, "password": PASSWORD, "_xsrf": cookies.get("_xsrf", "")}
    target = urlencode({"next": urlsplit(hub.url).path + "hub/home"})
    page = await _asked(hub, f"hub/login?{target}", times, cookies, urlencode(words))
    if page.code != 302:
        times.errors.append(f"{name} signs in: {page.code}")
        return
    page = await _asked(hub, "hub/home", times, cookies)
    if page.code != 200:
        times.errors.append(f"{name} is in: {page.code}")


async def _asked(
    hub: RealHub, path: str, times: Times, cookies: dict[str, str], body: str | None = None
) -> HTTPResponse:
    """Send a request, add its duration to `times`, and store the cookies of the response in
    `cookies`.
    """
    headers = {"Cookie": "; ".join(f"{key}={value}" for key, value in cookies.items())}
    request = HTTPRequest(
        hub.url + path,
        method="GET" if body is None else "POST",
        body=body,
        headers=headers,
        follow_redirects=False,
        request_timeout=120,
        connect_timeout=120,
    )
    began = time.monotonic()
    answer = await AsyncHTTPClient().fetch(request, raise_error=False)
    times.seconds.append(time.monotonic() - began)
    for line in answer.headers.get_list("Set-Cookie"):
        cookies |= {key: morsel.value for key, morsel in SimpleCookie(line).items()}
    return answer


async def _start(hub: RealHub, token: str, name: str, after: float, times: Times) -> None:
    """Start a notebook and wait at most two minutes until it is ready; record an error if it is
    not.
    """
    await asyncio.sleep(after)  # users arrive one after another
    headers = {"Authorization": f"token {token}"}
    url = f"{hub.url}hub/api/users/{name}"
    client = AsyncHTTPClient()
    post = HTTPRequest(f"{url}/server", "POST", headers, body="", request_timeout=120)
    answer = await client.fetch(post, raise_error=False)
    deadline = time.monotonic() + 2 * WITHIN
    while answer.code in {200, 201, 202} and time.monotonic() < deadline:
        began = time.monotonic()
        answer = await client.fetch(HTTPRequest(url, headers=headers), raise_error=False)
        times.seconds.append(time.monotonic() - began)
        if answer.code == 200 and b'"ready": true' in answer.body:
            return
        await asyncio.sleep(1)  # the hub's own page polls once a second, too
    times.errors.append(f"no notebook of {name}: {answer.code}")
