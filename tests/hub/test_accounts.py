"""Accounts of a real hub over HTTP: links, passwords, guessing, and who may have a notebook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from support.hub.console_clients import Console, opened, refused, shell
from support.hub.make_run import OWNER, PASSWORD, Hub, Visitor


def links(console: Console, names: list[str], *, reset: bool = False) -> dict[str, str]:
    """Return the links with which these users set their passwords, also for users without a system
    account.
    """
    body = {"names": names, "reset": reset, "withoutNotebook": True}
    answer = console.ask("POST", "api/users/links", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json()["links"])


def test_the_first_start_lets_the_owner_choose_a_password(hub: Hub, admin: Visitor) -> None:
    """The printed link gives its owner an administrator's account with a password of their
    choice.
    """
    assert admin.signed_in
    assert admin.get("admin").status_code == 200
    assert hub.visitor(OWNER).signed_in


def test_a_link_works_once(hub: Hub, admin: Visitor) -> None:
    """The page of a used link says that the link is no longer valid."""
    again = hub.visitor().get(hub.link)

    assert again.status_code == 404
    assert "This link is no longer valid" in again.text


def test_looking_at_a_link_uses_nothing_up(hub: Hub, admin: Visitor) -> None:
    """A link stays valid when a chat program fetches it for a preview."""
    link = hub.accounts("invite", "looker").strip()
    for _ in range(2):
        page = hub.visitor().get(link)
        assert page.status_code == 200
        assert page.headers["Referrer-Policy"] == "no-referrer"


def test_a_password_that_is_too_short_is_told_so(hub: Hub, admin: Visitor) -> None:
    """A new password needs eight characters, entered twice; a refused attempt does not use up the
    link.
    """
    link, visitor = hub.accounts("invite", "short").strip(), hub.visitor()

    assert "8 characters" in visitor.set_password(link, "seven77").text
    assert "differ" in visitor.set_password(link, PASSWORD, "another one").text
    assert visitor.set_password(link).status_code == 302


def test_a_wrong_password_and_a_wrong_name_look_the_same(hub: Hub, admin: Visitor) -> None:
    """A wrong password and an unknown name get the same answer."""
    answers = [hub.visitor().sign_in(name, "not this one") for name in (OWNER, "nobody-here")]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert all("Invalid username or password" in answer.text for answer in answers)


def test_guessing_is_slowed_down_for_the_account_alone(hub: Hub, admin: Visitor) -> None:
    """After ten wrong passwords even the right one must wait, and the page says how long."""
    link = hub.accounts("invite", "guessed").strip()
    hub.visitor().set_password(link)
    visitor = hub.visitor()
    seen = [visitor.sign_in("guessed", f"wrong {number}").status_code for number in range(10)]
    refused = visitor.sign_in("guessed", PASSWORD)

    assert seen == [403] * 10
    assert refused.status_code == 429
    assert re.search(r"try again in (a minute|\d minutes)", refused.text)
    assert hub.visitor(OWNER).signed_in


def test_a_reset_link_replaces_a_forgotten_password(hub: Hub, admin: Visitor) -> None:
    """A reset link invalidates the old password and its sessions at once; the user sets a new
    password with it.
    """
    hub.visitor().set_password(hub.accounts("invite", "forgetful").strip())
    before = hub.visitor("forgetful")

    link = hub.accounts("reset", "Forgetful").strip()

    assert not before.signed_in
    assert hub.visitor().sign_in("forgetful", PASSWORD).status_code == 403
    hub.visitor().set_password(link, "something new")
    assert hub.visitor().sign_in("forgetful", PASSWORD).status_code == 403
    assert hub.visitor("forgetful", "something new").signed_in


def test_a_link_of_the_page_resets_a_password_as_the_command_does(hub: Hub, admin: Visitor) -> None:
    """A link from the administrator's console resets a password, too."""
    hub.visitor().set_password(hub.accounts("invite", "robbed").strip())
    thief = hub.visitor("robbed")

    console = opened(admin)
    assert links(console, ["robbed"], reset=True).keys() == {"robbed"}

    assert not thief.signed_in
    assert hub.visitor().sign_in("robbed", PASSWORD).status_code == 403


def test_an_invitation_resets_nobody(hub: Hub, admin: Visitor) -> None:
    """An invitation keeps an existing password and its sessions unless a reset is requested."""
    hub.visitor().set_password(hub.accounts("invite", "joined").strip())
    joined, console = hub.visitor("joined"), opened(admin)
    words = ("admin", "users", "invite", "joined", "--without-notebook")

    alone = console.ask("POST", "api/users/links", json={"names": ["Joined"]})
    body = {"names": ["joined", "fresh"], "withoutNotebook": True}
    both = console.ask("POST", "api/users/links", json=body)
    one = shell(hub, *words)
    more = shell(hub, *words, "fresh")
    command = hub.accounts("invite", "joined")

    assert refused(alone, 409) and alone.json()["title"] == "HasPassword"
    assert "joined already has a password" in alone.json()["detail"]
    assert both.status_code == 201, both.text
    assert both.json()["links"].keys() == {"fresh"} and both.json()["leftAlone"] == ["joined"]
    assert one.returncode != 0 and "--reset" in one.stderr
    assert more.stdout.startswith("fresh http") and "joined already has a password" in more.stderr
    assert "joined already has a password" in command and "--reset" in command
    assert joined.signed_in and hub.visitor("joined").signed_in
    noted = console.ask("GET", "api/audit?limit=200").json()["items"]
    told = [entry["what"] for entry in noted if entry["owner"] == "joined"]
    assert told == ["invite"]

    reset = shell(hub, *words, "--reset")

    assert reset.stdout.startswith("joined http"), reset.stderr
    assert not joined.signed_in


def test_people_change_their_own_password(hub: Hub, admin: Visitor) -> None:
    """Changing a password needs the old one, and signs out every other browser."""
    hub.visitor().set_password(hub.accounts("invite", "changer").strip())
    here, elsewhere = hub.visitor("changer"), hub.visitor("changer")
    made = elsewhere.api("POST", "users/changer/tokens", {"note": "a test"}).json()["token"]
    token = {"Authorization": f"token {made}"}
    form = {"present": "not mine", "password": "the next one", "again": "the next one"}

    assert "not your current password" in here.submit("change-password", form).text
    assert hub.visitor().get("api/user", headers=token).status_code == 200
    done = here.submit("change-password", {**form, "present": PASSWORD})

    assert "Your password is changed" in done.text
    assert here.signed_in and not elsewhere.signed_in
    assert hub.visitor().get("api/user", headers=token).status_code == 403
    assert hub.visitor("changer", "the next one").signed_in


def test_an_administrator_invites_in_the_console_and_each_is_noted(
    hub: Hub, admin: Visitor
) -> None:
    """A new link that an administrator makes for a user replaces the old link. A user cannot make
    links in the console, and nobody can make them through the hub's API.
    """
    assert admin.api("POST", "users/added").status_code == 201
    console = opened(admin)
    first = links(console, ["added"])["added"]
    assert first.startswith(f"{hub.url}/hub/set-password?code=")
    both = links(console, ["added", "ida"])

    assert hub.visitor().get(first).status_code == 404
    assert hub.visitor().set_password(both["added"]).status_code == 302
    guest = hub.visitor("added")
    assert guest.get("accounts").status_code == 403
    assert guest.get("admin").status_code == 403
    assert Console(guest).ask("POST", "api/users/links", json={}).status_code in (401, 403)
    for visitor in (guest, admin):
        assert visitor.api("POST", "accounts/links", {"names": ["ida"]}).status_code == 403
    assert refused(console.ask("POST", "api/users/links", json={"names": "ida"}), 422)
    assert admin.get("accounts").url == f"{hub.url}/services/admin/users"
    noted = console.ask("GET", "api/audit?limit=200").json()["items"]
    told = [(one["what"], one["owner"], one["result"]) for one in noted if one["owner"] == "ida"]
    assert told == [("invite", "ida", "done")]


def test_nobody_is_invited_who_would_get_no_notebook(hub: Hub, admin: Visitor) -> None:
    """An invitation of a user without a system account is refused with the reason, in console and
    shell.
    """
    console, name = opened(admin), "tfc-nobody-at-all"
    reason = "has no system account" if os.geteuid() == 0 else "was started by"

    answer = console.ask("POST", "api/users/links", json={"names": [name]})
    told = shell(hub, "admin", "users", "invite", name)
    command = [sys.executable, "-m", "tfcluster_magic.hub", "accounts", "invite", name]
    done = subprocess.run(command, env=hub.environment, capture_output=True, text=True, check=False)
    body = {"csv": f"name\n{name}\n", "dryRun": True}
    line = console.ask("POST", "api/users/import", json=body).json()["lines"][0]

    assert refused(answer, 409) and reason in answer.json()["detail"]
    assert told.returncode != 0 and reason in told.stderr
    assert done.returncode == 1 and reason in done.stderr and "--without-notebook" in done.stderr
    assert not line["ok"] and reason in line["detail"]
    assert name not in hub.accounts("list")


def test_what_is_done_in_a_shell_is_in_the_audit_log(hub: Hub, admin: Visitor) -> None:
    """As the source of a change, the audit log names the shell for a command, whether or not the
    command uses the console, and the browser's address for a change in a browser.
    """
    hub.accounts("invite", "noted")
    hub.accounts("reset", "noted")
    hub.accounts("remove", "noted")
    made = shell(hub, "admin", "users", "invite", "noted", "--without-notebook")
    links(opened(admin), ["noted"])
    audit = shell(hub, "admin", "audit", "-o", "json")

    assert made.stdout.startswith(f"noted {hub.url}/hub/set-password?code="), made.stderr
    found = [one for one in json.loads(audit.stdout)["items"] if one["owner"] == "noted"]
    assert [(one["what"], one["who"], one["source"]) for one in reversed(found)] == [
        ("invite", OWNER, "shell"),
        ("new link", OWNER, "shell"),
        ("remove account", OWNER, "shell"),
        ("invite", OWNER, "shell"),
        ("new link", OWNER, "127.0.0.1"),
    ]


def test_a_user_who_is_deleted_in_the_hub_has_no_account(hub: Hub, admin: Visitor) -> None:
    """A user who is deleted in the hub also loses the account."""
    hub.visitor().set_password(hub.accounts("invite", "leaver").strip())
    assert hub.visitor("leaver").signed_in

    assert admin.api("DELETE", "users/leaver").status_code == 204

    assert "leaver" not in hub.accounts("list")
    assert hub.visitor().sign_in("leaver", PASSWORD).status_code == 403


def test_who_is_removed_from_a_shell_is_no_user_of_the_hub(hub: Hub, admin: Visitor) -> None:
    """Removing an account in a shell also removes the hub user, so a new user of that name does not
    inherit rights.
    """
    hub.visitor().set_password(hub.accounts("invite", "dismissed", "--admin").strip())
    dismissed = hub.visitor("dismissed")
    assert dismissed.get("admin").status_code == 200

    assert hub.accounts("remove", "dismissed") == "dismissed is removed.\n"

    assert not dismissed.signed_in
    assert admin.api("GET", "users/dismissed").status_code == 404
    hub.visitor().set_password(hub.accounts("invite", "dismissed").strip())
    assert hub.visitor("dismissed").get("admin").status_code == 403


def test_an_administrator_makes_another_one_in_the_hub(hub: Hub, admin: Visitor) -> None:
    """The hub's database stores who is an administrator; a reset link does not change that."""
    hub.visitor().set_password(hub.accounts("invite", "second").strip())
    admin.api("PATCH", "users/second", {"admin": True})
    hub.visitor().set_password(hub.accounts("reset", "second").strip())

    assert hub.visitor("second").get("admin").status_code == 200


def test_nobody_signs_up_alone(hub: Hub, admin: Visitor) -> None:
    """There is no sign-up page, and a password without an account signs nobody in."""
    page = hub.visitor().get("signup")
    assert page.status_code == 404
    assert "There is no such page" in page.text
    assert hub.visitor().sign_in("stranger", PASSWORD).status_code == 403


def test_who_has_no_system_account_is_told_why_there_is_no_notebook(
    hub: Hub, admin: Visitor
) -> None:
    """A second user never gets a notebook under the first user's uid."""
    hub.visitor().set_password(hub.accounts("invite", "tfc-nobody-of-this-name").strip())
    answer = hub.visitor("tfc-nobody-of-this-name").get("spawn")

    assert answer.status_code == 403
    reason = "has no system account" if os.geteuid() == 0 else "was started by"
    assert reason in answer.text


def test_an_unknown_account_cannot_be_reset(hub: Hub, admin: Visitor) -> None:
    """Resetting an unknown account fails, and the command lists the accounts."""
    assert "there is no account" in hub.accounts("reset", "nobody-here")


def test_what_the_hub_keeps_is_its_owners_alone(hub: Hub, admin: Visitor) -> None:
    """The hub's state folder and accounts are readable by their owner only, and hold no
    password.
    """
    folder = hub.state / "hub"
    file = folder / "accounts.json"

    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in file.read_text()
    assert hub.link.partition("code=")[2] not in hub.said()
