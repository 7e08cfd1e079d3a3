"""The hub's accounts, tested without a hub: the file, invite links, hashes, and the list of common
passwords.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.clock import Clock
from support.project import ROOT
from tornado.web import HTTPError

from tfcluster_magic import state_files
from tfcluster_magic.errors import InvalidRequest, NotFound, TFClusterError
from tfcluster_magic.hub.auth import accounts, password_authenticator
from tfcluster_magic.hub.auth.accounts import (
    LINK_HOURS,
    AccountStore,
    AccountsUnreadable,
    LinkRefused,
    PasswordReplaced,
    allowed_name,
)
from tfcluster_magic.hub.auth.commands import URL, hub_address, state_of
from tfcluster_magic.hub.auth.guess_limits import HashQueue
from tfcluster_magic.hub.auth.pages import SignInPage
from tfcluster_magic.hub.auth.password_authenticator import AccountsAuthenticator

TF = {"TFCLUSTER_HUB_BASE_URL": "/tf/"}
HOST = {**TF, "TFCLUSTER_HUB_SUBDOMAIN_HOST": "https://hub.example.com"}
ANYONE = ["--without-notebook"]
STORED = accounts.hash_password("correct horse")
IN_THREAD = """
import asyncio, os, threading
from tfcluster_magic.hub.auth.password_authenticator import AccountsAuthenticator
def priority(): return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
print(asyncio.run(AccountsAuthenticator().in_thread(priority)))
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> AccountStore:
    return AccountStore(tmp_path / "accounts.json", clock)


def test_a_link_sets_a_password_once(store: AccountStore) -> None:
    """A link works once, and makes the account an administrator's if it was created for an
    administrator.
    """
    code = store.invite("Ada", admin=True)

    assert store.invited(code) == ("ada", True)
    assert store.redeem(code, STORED) == ("ada", True)
    assert store.password("ada") == STORED
    with pytest.raises(LinkRefused, match="works once"):
        store.redeem(code, STORED)


def test_links_of_a_class_are_made_at_once(store: AccountStore) -> None:
    """Each user of a class gets one link; if one name is invalid, no link is made."""
    codes = store.invite_all(["Ada", "bob"])
    assert {name: store.invited(code) for name, code in codes.items()} == {
        "Ada": ("ada", False),
        "bob": ("bob", False),
    }
    assert store.resets() == {}  # the accounts are new, so they have no sessions to end
    before = store.path.read_bytes()
    with pytest.raises(InvalidRequest):
        store.invite_all(["cyd", "a/b"])
    assert store.path.read_bytes() == before


def test_a_link_ends_with_its_day(store: AccountStore, clock: Clock) -> None:
    """An invite link works until the last second before it expires."""
    code = store.invite("ada")
    clock.now += LINK_HOURS * 3600 - 1
    assert store.invited(code) == ("ada", False)
    clock.now += 2
    with pytest.raises(LinkRefused):
        store.invited(code)


def test_a_newer_link_replaces_an_older_one(store: AccountStore) -> None:
    """A newer link replaces the older link and deletes the account's password; otherwise, someone
    who knows that password could sign in and change it.
    """
    store.redeem(store.invite("ada"), STORED)
    kept = store.invite("ada", keep=True)
    assert store.password("ada") == STORED
    new = store.invite("ada")

    with pytest.raises(LinkRefused):
        store.invited(kept)
    assert store.password("ada") is None
    assert store.invited(new) == ("ada", False)


def test_a_reset_is_noted_until_the_hub_has_done_it(store: AccountStore) -> None:
    """Using a link, changing a password and making a link each record a separate reset."""
    store.redeem(store.invite("ada"), STORED)
    marks = [store.resets()["ada"]]
    store.set_password("ada", STORED)
    marks.append(store.resets()["ada"])
    store.invite("ada")
    marks.append(store.resets()["ada"])
    assert len({*marks}) == 3
    store.reset_done("ada", marks[1])
    assert store.resets() == {"ada": marks[2]}
    store.reset_done("ada", marks[2])
    assert store.resets() == {}
    store.set_password("ada", STORED)
    store.dismiss("ada")
    assert store.resets() == {}  # the reset is removed together with the user


def test_a_changed_password_voids_a_link_that_waited(store: AccountStore) -> None:
    """Changing the password voids an invite link that was made before."""
    code = store.invite("ada")
    store.set_password("ada", STORED)
    with pytest.raises(LinkRefused):
        store.invited(code)
    with pytest.raises(NotFound):
        store.set_password("nobody", STORED)


def test_the_file_holds_no_code_and_is_for_one_user(store: AccountStore) -> None:
    """A backup of the file contains no usable link."""
    code = store.invite("ada")

    assert code not in store.path.read_text()
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.with_suffix(".lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1, "accounts": {"ada": {"passwd": "x"}}}', "\0" * 40]
)
def test_a_file_that_cannot_be_read_is_kept(store: AccountStore, text: str) -> None:
    """An unreadable file is not overwritten, and the message names it."""
    store.path.write_text(text)

    for act in (store.read, lambda: store.invite("ada"), lambda: store.remove("ada")):
        with pytest.raises(AccountsUnreadable, match=r"accounts\.json"):
            act()
    assert store.path.read_text() == text
    assert [path.name for path in store.path.parent.iterdir() if path.name.startswith(".")] == []


def _invite_many(path: Path, start: int) -> None:
    for number in range(start, start + 20):
        AccountStore(path).invite(f"user-{number}")


def test_a_file_that_nobody_could_read_is_not_written(
    store: AccountStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new account is refused if the file would exceed the size that the hub reads."""
    store.invite("ada")
    monkeypatch.setattr(state_files, "MOST_BYTES", store.path.stat().st_size)
    with pytest.raises(TFClusterError, match="is full"):
        store.invite("bob")
    assert store.read().keys() == {"ada"}


def test_writers_lose_nothing_of_each_other(store: AccountStore) -> None:
    """Three processes write at once, and a reader always finds a complete file."""
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_invite_many, args=(store.path, n)) for n in (0, 20, 40)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        found = len(store.read())
        assert found >= seen
        seen = found
    for writer in writers:
        writer.join()
    assert len(store.read()) == 60


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a/b", "a\nb", "a\0b", "x" * 65])
def test_names_that_no_account_has(store: AccountStore, name: str) -> None:
    """A user name must be readable and valid in a URL."""
    with pytest.raises(InvalidRequest, match="a user name has"):
        store.invite(name)


def test_one_name_is_one_account_however_it_is_typed() -> None:
    """Upper case and both Unicode forms of é are the same name."""
    assert allowed_name(" Ren\u00c9 ") == allowed_name("rene\u0301") == "ren\u00e9"


def test_a_password_is_known_by_its_hash_alone() -> None:
    """Two hashes of the same password differ, and each names its method."""
    assert accounts.password_matches("correct horse", STORED)
    assert accounts.password_matches(
        "re\u0301sume\u0301s", accounts.hash_password("r\u00e9sum\u00e9s")
    )
    assert not accounts.password_matches("wrong horse", STORED)
    assert not accounts.password_matches("x", None)
    assert accounts.hash_password("correct horse") != STORED
    assert STORED.startswith("scrypt$14$8$5$")
    with pytest.raises(ValueError, match="bcrypt"):
        accounts.password_matches("correct horse", STORED.replace("scrypt", "bcrypt"))


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("seven77", "at least 8 characters"),
        ("12345678", "most common"),
        ("PassWord", "most common"),
        ("password2026!", "most common"),
        ("aaaaaaaa", "repeats"),
        ("\uff41" * 8, "repeats"),
        ("abcabcabcabc", "repeats"),
        ("98765432100", "follows the keyboard"),
        ("aaaabbbbcccc", "follows the keyboard"),
        ("yuiopghjkl;", "follows the keyboard"),
        ("ada-lovelace", "name of the account"),
        ("Ada-Lovelace1815", "name of the account"),
        ("tfcluster2026", "name of the account"),
        ("x" * 1001, "at most"),
    ],
)
def test_what_is_guessed_first_is_no_password(password: str, why: str) -> None:
    """A common password is refused for everybody, in upper or lower case, with the reason."""
    for admin in (False, True):
        told = accounts.password_problem(password, "ada-lovelace", admin=admin)
        assert told and (why in told or admin)


def test_a_password_of_an_administrator_is_longer() -> None:
    """An administrator needs twelve characters instead of eight; no kinds of characters are
    required.
    """
    assert accounts.password_problem("nine-lamp") is None
    told = accounts.password_problem("nine-lamp", admin=True)
    assert told == "An administrator's password has at least 12 characters: choose a longer one."
    assert accounts.password_problem("nine-lamps-on", admin=True) is None
    assert accounts.password_problem("the password of ada", "ada", admin=True) is None


def test_the_page_tells_how_many_passwords_are_on_the_list() -> None:
    """The list names its source and its licence, and has no password that is refused for its
    length.
    """
    listed = accounts._common()
    page = (ROOT / "docs" / "reference" / "hub.md").read_text()
    assert f"refuses {len(listed):,} common passwords" in page
    assert min(map(len, listed)) == accounts.SHORTEST
    assert "MIT License" in accounts.COMMON_PASSWORDS.read_text()


def test_a_queue_that_is_full_refuses_its_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a bounded number of passwords waits to be hashed, however many are tried."""
    monkeypatch.setattr(password_authenticator, "LONGEST_QUEUE", 2)

    async def tried() -> None:
        accounts, go = password_authenticator.AccountsAuthenticator(), threading.Event()
        waiting = [
            asyncio.ensure_future(accounts.in_thread(go.wait, queue=HashQueue.NOISY))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(HTTPError, match="503"):
            await accounts.in_thread(go.wait, queue=HashQueue.NOISY)
        assert await accounts.in_thread(int, "7", queue=HashQueue.NEW) == 7
        go.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await accounts.in_thread(int, "7", queue=HashQueue.NOISY) == 7

    asyncio.run(tried())


def test_the_command_makes_lists_and_removes(tmp_path: Path) -> None:
    """For scripts, only the link is on stdout; explanations are on stderr."""
    done = _accounts(
        tmp_path, "--url", "https://hub.example/tf/", "invite", *ANYONE, "Ada", "--admin"
    )
    assert done.returncode == 0
    assert done.stdout.startswith("https://hub.example/tf/hub/set-password?code=")
    assert (
        "Open this link to set the password of ada. It works once, within 24 hours:" in done.stderr
    )
    assert "stopped working" not in done.stderr
    listed = _accounts(tmp_path, "list").stdout
    assert re.match(r"ada\tlink until \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d{4}\n", listed)
    said = "ada cannot sign in any more. The hub will remove its user at its next start.\n"
    assert _accounts(tmp_path, "remove", "ADA").stdout == said
    assert _accounts(tmp_path, "list").stdout == ""
    gone = _accounts(tmp_path, "remove", "bob")
    assert gone.returncode == 1 and "there is no account 'bob'" in gone.stderr
    assert "Traceback" not in gone.stderr


def test_an_invitation_from_a_shell_replaces_no_password(tmp_path: Path) -> None:
    """An invitation for an account that has a password is refused; with `--reset`, a link is
    made.
    """
    store = AccountStore(tmp_path / "accounts.json")
    store.redeem(store.invite("ada"), STORED)

    kept = _accounts(tmp_path, "invite", "Ada", "--admin")

    assert kept.returncode == 1 and kept.stdout == ""
    assert "ada already has a password" in kept.stderr
    assert "accounts invite ada --reset`" in kept.stderr
    assert store.password("ada") == STORED and state_of(store.read()["ada"]).link_until is None

    reset = _accounts(tmp_path, "invite", "ada", "--reset")

    assert "/hub/set-password?code=" in reset.stdout and store.password("ada") is None
    assert "all sessions and all tokens of ada have stopped working" in reset.stderr
    again = _accounts(tmp_path, "invite", "ada")
    assert "/hub/set-password?code=" in again.stdout, "a link that waits is no password"


@pytest.mark.parametrize("verb", ["invite", "reset"])
def test_a_hub_without_passwords_makes_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """With sign-in at a provider, a command that makes a link is refused and makes no account."""
    monkeypatch.setenv("TFCLUSTER_HUB_SIGN_IN", "oidc")

    refused = _accounts(tmp_path, verb, "ada")

    assert refused.returncode == 1 and refused.stdout == ""
    assert "this hub has no passwords, because users sign in at a provider" in refused.stderr
    assert not AccountStore(tmp_path / "accounts.json").read()


def test_a_password_that_is_reset_while_it_is_checked_begins_no_session(tmp_path: Path) -> None:
    """A reset during a password check prevents the session, also for a user who never signed in."""
    authenticator = AccountsAuthenticator(path=str(tmp_path / "accounts.json"))
    store = authenticator.store
    store.redeem(store.invite("ada"), STORED)
    page = SimpleNamespace(authenticator=authenticator, signed_in_with=("ada", STORED))
    authenticator.confirm(page)
    authenticator.confirm(SimpleNamespace())  # no error for a page without a typed password

    store.invite("ada")

    with pytest.raises(HTTPError) as refused:
        SignInPage.set_login_cookie(page, None)  # type: ignore[arg-type]
    assert refused.value.status_code == 403


def test_the_command_deletes_no_files_of_this_machine(tmp_path: Path) -> None:
    """A removal with data is refused before any change, and the message has the command that
    deletes the files.
    """
    _accounts(tmp_path, "invite", *ANYONE, "ada")
    refused = _accounts(tmp_path, "remove", "ada", "--with-data")
    assert refused.returncode == 1 and "userdel --remove" in refused.stderr
    assert _accounts(tmp_path, "list").stdout.startswith("ada\t")


def test_a_hub_that_is_away_has_a_note_of_whom_it_forgets(store: AccountStore) -> None:
    """The note about a removed user stays until the hub has processed it, even if the name is used
    again.
    """
    assert not store.dismiss("ada")
    store.invite("ada")
    assert store.dismiss("ada", with_data=True)
    assert store.dismiss("ada")
    store.invite("ada")
    assert store.removed() == {"ada": True}
    store.forgotten("ada")
    assert store.removed() == {}
    assert [*store.read()] == ["ada"]


@pytest.mark.parametrize(
    ("environ", "written", "url", "told"),
    [
        ({}, "http://127.0.0.1:8888/tf", None, "http://127.0.0.1:8888/tf"),
        ({}, "http://127.0.0.1:8888/tf", "http://lab:80", "http://lab:80/tf"),
        ({}, "", None, "http://<hub>"),
        (TF, "", None, "http://<hub>/tf"),
        (TF, "", "https://hub.example.com/", "https://hub.example.com/tf"),
        (TF, "", "https://example.com/outer/tf/", "https://example.com/outer/tf/"),
        (HOST, "", None, "https://hub.example.com/tf"),
    ],
)
def test_a_link_from_a_shell_has_the_path_of_the_hub(
    environ: dict[str, str],
    written: str,
    url: str | None,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link has the hub's path, also where the hub has saved no address, as in a pod."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    if written:
        (tmp_path / URL).write_text(written)
    assert hub_address(tmp_path, url) == told


def test_without_a_reset_a_password_stays(store: AccountStore) -> None:
    """Without a reset, only accounts without a password get links."""
    store.redeem(store.invite("ada"), STORED)
    ended = store.resets()

    codes = store.invite_all(["ada", "bob"], reset=False)

    assert codes.keys() == {"bob"}
    assert store.password("ada") == STORED and store.resets() == ended
    assert store.invited(codes["bob"]) == ("bob", False)
    assert store.invite_all(["ada", "bob"]).keys() == {"ada", "bob"}
    assert store.password("ada") is None


def test_the_state_of_an_account_in_words(store: AccountStore) -> None:
    """The description of an account says whether it has a password."""
    assert state_of(None).in_words() == "no password"
    store.redeem(store.invite("ada"), STORED)
    assert state_of(store.read()["ada"]).in_words() == "has a password"


def _accounts(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfcluster_magic.hub", "accounts", "--state", str(state)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, env={**os.environ}
    )


def test_the_file_can_be_read_by_people(store: AccountStore) -> None:
    """The file is JSON with a format version."""
    store.redeem(store.invite("ada"), STORED)
    store.reset_done("ada", store.resets()["ada"])
    assert json.loads(store.path.read_text()) == {
        "version": 1,
        "accounts": {"ada": {"password": STORED}},
    }


def test_whose_the_file_is_does_not_change(store: AccountStore) -> None:
    """Root can make a link for the hub of an ordinary user; the file still belongs to that user."""
    store.invite("ada")
    owner = 1 if os.geteuid() == 0 else os.geteuid()
    for hubs in (store.path, store.path.parent):
        os.chown(hubs, owner, -1)
    store.invite("bob")
    assert store.path.stat().st_uid == owner


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority of its own elsewhere")
@pytest.mark.parametrize("nice", [0, 15])
def test_a_hub_that_was_started_with_nice_takes_passwords(nice: int) -> None:
    """A hub started with `nice` hashes passwords at a still lower priority, although it cannot
    raise it again without root.
    """
    plain = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]
    start = ["nice", "-n", str(nice), *(plain if os.geteuid() == 0 else [])]
    said = subprocess.run(
        [*start, sys.executable, "-c", IN_THREAD], capture_output=True, text=True, check=False
    )
    own = min(19, os.getpriority(os.PRIO_PROCESS, 0) + nice)
    assert said.stdout == f"{min(19, own + 10)}\n", said.stderr


def test_a_reset_is_not_undone_by_a_password_checked_before_it(tmp_path: Path) -> None:
    """If a password is replaced after it was checked, a change that relies on that check has no
    effect.
    """
    store = AccountStore(tmp_path / "accounts.json")
    store.redeem(store.invite("ada"), STORED)
    code = store.invite("ada")  # an invitation of an existing account is a reset
    for _state in ("reset", "redeemed"):
        with pytest.raises(PasswordReplaced):
            store.set_password("ada", "the thief's", instead_of=STORED)
        with pytest.raises(PasswordReplaced):
            store.invite("ada", keep=True, only_if=STORED)
        if _state == "reset":
            store.redeem(code, "the owner's")
    assert store.password("ada") == "the owner's"
    store.set_password("ada", STORED, instead_of="the owner's")
    assert store.password("ada") == STORED
