"""Attacks on a hub's accounts: guesses, forged addresses, stolen tokens, links used twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import requests
from support.hub.make_run import PASSWORD
from support.hub.visitor import Visitor

from .cases import Attempt
from .target import Target

COMMON = ("12345678", "password", "123456789", "qwertyuiop", "11111111", "iloveyou", "password1")
NEW = "quite another one"


def _name(drawn: random.Random) -> str:
    return f"user-{drawn.getrandbits(40):x}"


def _sign_in(target: Target, name: str, password: str, **headers: str) -> requests.Response:
    """Try to sign in as somebody through the proxy, with additional headers."""
    visitor = Visitor(target.url)
    # The headers must be set first: the page's XSRF token is valid only for the claimed address.
    visitor.session.headers.update(headers)
    visitor.get("hub/login")
    typed = {"username": name, "password": password, "_xsrf": visitor.xsrf("hub/login")}
    return visitor.session.post(
        f"{target.url}hub/login", data=typed, timeout=120, allow_redirects=False
    )


def _forged(drawn: random.Random) -> dict[str, str]:
    """Return headers in which a client claims another address."""
    address = f"203.0.113.{drawn.randrange(256)}"
    names = ("X-Real-Ip", "X-Forwarded-For", "Forwarded", "X-Client-IP", "CF-Connecting-IP")
    said = dict.fromkeys(drawn.sample(names, 3), address)
    if "Forwarded" in said:
        said["Forwarded"] = f"for={address}"
    return said


def guesses(target: Target, drawn: random.Random) -> None:
    """Guesses at one account are refused after a limit, whatever address the guesser claims."""
    name = _name(drawn)
    target.newcomer(name)
    answers = [_sign_in(target, name, f"wrong {n}", **_forged(drawn)) for n in range(14)]
    seen = [answer.status_code for answer in answers]
    assert "Invalid username or password" in answers[0].text, answers[0].text[-2000:]
    assert 429 in seen, f"{len(seen)} wrong passwords of one account were all looked at: {seen}"


def whole_address(target: Target, drawn: random.Random) -> None:
    """Guesses at made-up names do not lock out anybody who has the right password."""
    name = _name(drawn)
    target.newcomer(name)
    left = 130  # more guesses than one address may make
    lock = threading.Lock()

    def guess() -> None:
        nonlocal left
        while True:
            with lock:
                left -= 1
                number = left
            if number < 0:
                return
            _sign_in(target, f"nobody-{number}", "wrong")

    at_once([guess] * 4)
    answer = _sign_in(target, name, PASSWORD)
    assert answer.status_code == 302, f"the right password is refused: {answer.status_code}"


def forged_address(target: Target, drawn: random.Random) -> None:
    """The audit log never names an address that a client made up."""
    owner = target.owner
    address = f"203.0.113.{drawn.randrange(256)}"
    page = owner.get("services/admin/").text
    token = page.partition('data-xsrf="')[2].partition('"')[0]
    headers = {"X-XSRFToken": token, "Sec-Fetch-Mode": "cors"}
    headers |= {"X-Real-Ip": address, "X-Forwarded-For": address}
    name = _name(drawn)
    body = {"csv": f"name,group\n{name},class\n", "dryRun": False, "withoutNotebook": True}
    ports = drawn.choice(("front", "console"))
    base = f"http://127.0.0.1:{target.doors[ports][0]}/"
    told = owner.session.post(
        f"{base}services/admin/api/users/import", json=body, headers=headers, timeout=120
    )
    assert told.status_code == 200, f"{told.status_code} {told.text[:200]}"
    log = owner.ask("GET", "services/admin/api/audit", headers={"X-XSRFToken": token})
    assert name in log.text, "what was done is not in the audit log"
    assert address not in log.text, f"by {ports} the audit log takes {address} for the source"
    door = drawn.choice(("front", "hub"))
    visitor = Visitor(f"http://127.0.0.1:{target.doors[door][0]}/")
    visitor.session.headers.update({"X-Real-Ip": address, "X-Forwarded-For": address})
    visitor.get("hub/login")
    typed = {"username": name, "password": "wrong", "_xsrf": visitor.xsrf("hub/login")}
    answer = visitor.session.post(f"{visitor.url}hub/login", data=typed, timeout=120)
    assert answer.status_code == 403, answer.status_code
    said = (target.hub.state / "hub" / "hub.log").read_text(errors="replace")
    assert f"@{address})" not in said, f"by {door} the hub takes {address} for who signs in"


def reset(target: Target, drawn: random.Random) -> None:
    """After a reset no earlier session or token is accepted, nor a token made with such a token."""
    name = _name(drawn)
    before = target.newcomer(name)
    first = before.ask("POST", f"hub/api/users/{name}/tokens", json={"note": "stolen"}).json()
    held: dict[str, str] = {"token": first["token"]}
    for level in range(drawn.randint(1, 3)):
        made = _by_token(target, [*held.values()][-1], "POST", f"hub/api/users/{name}/tokens")
        if made.status_code != 201:
            break
        held[f"token of a token, {level}"] = made.json()["token"]
    link = target.hub.accounts("reset", name).strip()
    assert target.hub.visitor().set_password(link, NEW).status_code == 302
    for what, token in held.items():
        answer = _by_token(target, token, "GET", "hub/api/user")
        assert answer.status_code in {401, 403}, f"the {what} still opens the hub as {name}"
        more = _by_token(target, token, "POST", f"hub/api/users/{name}/tokens")
        assert more.status_code in {401, 403, 404}, f"the {what} still makes tokens"
    assert before.ask("GET", "hub/api/user").status_code in {401, 403}, "the session lives on"
    assert _sign_in(target, name, PASSWORD).status_code == 403, "the old password still opens"
    assert _sign_in(target, name, NEW).status_code == 302


def _by_token(target: Target, token: str, method: str, path: str) -> requests.Response:
    headers = {"Authorization": f"token {token}"}
    return requests.request(
        method, target.url + path, headers=headers, json={}, allow_redirects=False, timeout=120
    )


def used_link(target: Target, drawn: random.Random) -> None:
    """A link works once, and a newer link invalidates it."""
    name = _name(drawn)
    old = target.hub.accounts("invite", name).strip()
    new = target.hub.accounts("invite", name).strip()
    browser = target.hub.visitor
    assert browser().get(old).status_code == 404, "a link that was replaced still works"
    assert browser().set_password(new).status_code == 302
    assert browser().get(new).status_code == 404, "a link works twice"
    visitor = target.stranger()
    for code in (new.partition("code=")[2], old.partition("code=")[2], "", "x" * 3000, "\0"):
        form = {"code": code, "password": NEW, "again": NEW, "_xsrf": visitor.xsrf("hub/login")}
        answer = visitor.session.post(
            f"{target.url}hub/set-password", data=form, timeout=120, allow_redirects=False
        )
        assert 400 <= answer.status_code < 500, f"{code[:20]!r}: {answer.status_code}"
    assert _sign_in(target, name, PASSWORD).status_code == 302


def one_link_twice(target: Target, drawn: random.Random) -> None:
    """If several people use one link at the same moment, only one gets in."""
    name = _name(drawn)
    link = target.hub.accounts("invite", name).strip()
    code = link.partition("code=")[2]
    people = [target.stranger() for _ in range(4)]

    def use(visitor: Visitor, password: str) -> Callable[[], int]:
        form = {"code": code, "password": password, "again": password}
        form["_xsrf"] = visitor.xsrf("hub/set-password")
        where = f"{target.url}hub/set-password"
        return lambda: int(
            visitor.session.post(where, data=form, timeout=120, allow_redirects=False).status_code
        )

    passwords = [f"the password of {number}" for number in range(len(people))]
    seen = at_once([use(*pair) for pair in zip(people, passwords, strict=True)])
    assert sorted(seen) == [302, 404, 404, 404], f"one link was used at once: {seen}"
    winner = passwords[seen.index(302)]
    opened = [
        password for password in passwords if _sign_in(target, name, password).status_code == 302
    ]
    assert opened == [winner], f"{winner!r} was taken, and {opened} opens the account"


def weak_passwords(target: Target, drawn: random.Random) -> None:
    """The most common passwords are refused to everybody, and short ones to administrators."""
    name = _name(drawn)
    link = target.hub.accounts("invite", name).strip()
    for password in drawn.sample(COMMON, 3):
        answer = target.hub.visitor().set_password(link, password)
        assert answer.status_code == 400, f"{password!r} is taken: {answer.status_code}"
    boss = _name(drawn)
    link = target.hub.accounts("invite", boss, "--admin").strip()
    short = f"{drawn.getrandbits(32):08x}"
    answer = target.hub.visitor().set_password(link, short)
    assert answer.status_code == 400, "an administrator's password may have eight characters"


def forms(target: Target, drawn: random.Random) -> None:
    """Malformed forms of the password pages are refused, and do not reveal who has an account."""
    odd: tuple[Any, ...] = (
        "",
        "\0",
        "a" * 70_000,
        "\x1b[31m",
        "../..",
        "<b>",
        "\uff11",
        "\ufb03",
        "nobody",
    )
    fields = ("username", "password", "code", "again", "present", "name")
    with target.calm():
        for number in range(6):
            visitor = target.stranger()
            page = drawn.choice(("login", "set-password", "change-password", "accounts"))
            page = page if number else "login"
            sample = drawn.sample(fields, drawn.randint(0, 5)) if number else []
            form = {field: drawn.choice(odd) for field in sample}
            form["_xsrf"] = visitor.xsrf("hub/login")
            answer = visitor.session.post(
                f"{target.url}hub/{page}", data=form, timeout=120, allow_redirects=False
            )
            led = answer.status_code == 302 and "/login" in answer.headers["Location"]
            told = f"{page} with {sorted(form)}: {answer.status_code}"
            assert led or 400 <= answer.status_code < 500, told
    name = _name(drawn)
    target.newcomer(name)
    answers = [_sign_in(target, each, "wrong") for each in (name, _name(drawn))]
    known, unknown = (one.text for one in answers)
    assert answers[0].status_code == answers[1].status_code
    assert ("Invalid username or password" in known) == ("Invalid username or password" in unknown)


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Make these calls at the same moment, and return their results."""
    gate, results = threading.Barrier(len(calls)), [None] * len(calls)
    errors: list[BaseException] = []

    def call(number: int) -> None:
        try:
            gate.wait(60)
            results[number] = calls[number]()
        except BaseException as error:  # noqa: BLE001  told below
            errors.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


CASES: Mapping[str, Attempt] = {
    "guesses": guesses,
    "forged-address": forged_address,
    "reset": reset,
    "used-link": used_link,
    "weak-passwords": weak_passwords,
    "password-forms": forms,
    "shared-address": whole_address,
}
