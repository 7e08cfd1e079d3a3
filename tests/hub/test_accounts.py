"""Accounts of a real hub, over HTTP: links, passwords, guessing, and who may have a notebook."""

from __future__ import annotations

import os
import re

from support.hub.make_run import OWNER, PASSWORD, Hub, Visitor


def test_the_first_start_lets_the_owner_choose_a_password(hub: Hub, admin: Visitor) -> None:
    """The printed link makes its owner an administrator with a password of their own."""
    assert admin.signed_in
    assert admin.get("admin").status_code == 200
    assert hub.visitor(OWNER).signed_in


def test_a_link_works_once(hub: Hub, admin: Visitor) -> None:
    """What was used says so, and changes nothing."""
    again = hub.visitor().get(hub.link)

    assert again.status_code == 404
    assert "This link is used up" in again.text


def test_looking_at_a_link_uses_nothing_up(hub: Hub, admin: Visitor) -> None:
    """A chat that looks ahead takes nobody's invitation."""
    link = hub.accounts("invite", "looker").strip()
    for _ in range(2):
        page = hub.visitor().get(link)
        assert page.status_code == 200
        assert page.headers["Referrer-Policy"] == "no-referrer"


def test_a_password_that_is_too_short_is_told_so(hub: Hub, admin: Visitor) -> None:
    """Eight characters, twice the same; the link is there for another try."""
    link, visitor = hub.accounts("invite", "short").strip(), hub.visitor()

    assert "8 characters" in visitor.set_password(link, "seven77").text
    assert "differ" in visitor.set_password(link, PASSWORD, "another one").text
    assert visitor.set_password(link).status_code == 302


def test_a_wrong_password_and_a_wrong_name_look_the_same(hub: Hub, admin: Visitor) -> None:
    """Nobody learns from the answer who has an account."""
    answers = [hub.visitor().sign_in(name, "not this one") for name in (OWNER, "nobody-here")]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert all("Invalid username or password" in answer.text for answer in answers)


def test_guessing_is_slowed_down_for_the_account_alone(hub: Hub, admin: Visitor) -> None:
    """After ten wrong passwords even the right one has to wait, and the page says how long."""
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
    """The old password and its sessions end when the link is made, and the new password works."""
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

    assert admin.api("POST", "accounts/links", {"names": ["robbed"]}).status_code == 201

    assert not thief.signed_in
    assert hub.visitor().sign_in("robbed", PASSWORD).status_code == 403


def test_people_change_their_own_password(hub: Hub, admin: Visitor) -> None:
    """Changing a password takes the old one, and signs out every other browser."""
    hub.visitor().set_password(hub.accounts("invite", "changer").strip())
    here, elsewhere = hub.visitor("changer"), hub.visitor("changer")
    made = elsewhere.api("POST", "users/changer/tokens", {"note": "a test"}).json()["token"]
    token = {"Authorization": f"token {made}"}
    form = {"present": "not mine", "password": "the next one", "again": "the next one"}

    assert "not your present password" in here.submit("change-password", form).text
    assert hub.visitor().get("api/user", headers=token).status_code == 200
    done = here.submit("change-password", {**form, "present": PASSWORD})

    assert "Your password is changed" in done.text
    assert here.signed_in and not elsewhere.signed_in
    assert hub.visitor().get("api/user", headers=token).status_code == 403
    assert hub.visitor("changer", "the next one").signed_in


def test_an_administrator_invites_on_the_page_and_by_the_api(hub: Hub, admin: Visitor) -> None:
    """A user who was added in the hub has no password until the link is used."""
    assert admin.api("POST", "users/added").status_code == 201
    page = admin.submit("accounts", {"name": "added"})
    shown = re.search(r'value="(http://[^"]*set-password[^"]*)"', page.text)
    assert shown
    by_api = admin.api("POST", "accounts/added/link").json()

    assert hub.visitor().get(shown.group(1)).status_code == 404  # the newer one replaced it
    assert hub.visitor().set_password(by_api["link"]).status_code == 302
    guest = hub.visitor("added")
    assert guest.get("accounts").status_code == 403
    assert guest.get("admin").status_code == 403
    assert guest.api("POST", "accounts/added/link").status_code == 403
    assert guest.api("POST", "accounts/links", {"names": ["added"]}).status_code == 403
    both = admin.api("POST", "accounts/links", {"names": ["added", "ida"]}).json()["links"]
    assert both.keys() == {"added", "ida"}
    assert admin.api("POST", "accounts/links", {"names": "ida"}).status_code == 400


def test_a_user_who_is_deleted_in_the_hub_has_no_account(hub: Hub, admin: Visitor) -> None:
    """The hub's own way to delete users is enough."""
    hub.visitor().set_password(hub.accounts("invite", "leaver").strip())
    assert hub.visitor("leaver").signed_in

    assert admin.api("DELETE", "users/leaver").status_code == 204

    assert "leaver" not in hub.accounts("list")
    assert hub.visitor().sign_in("leaver", PASSWORD).status_code == 403


def test_who_is_removed_from_a_shell_is_no_user_of_the_hub(hub: Hub, admin: Visitor) -> None:
    """Sessions and rights go with the account: who gets the name later has none of them."""
    hub.visitor().set_password(hub.accounts("invite", "dismissed", "--admin").strip())
    dismissed = hub.visitor("dismissed")
    assert dismissed.get("admin").status_code == 200

    assert hub.accounts("remove", "dismissed") == "dismissed is removed.\n"

    assert not dismissed.signed_in
    assert admin.api("GET", "users/dismissed").status_code == 404
    hub.visitor().set_password(hub.accounts("invite", "dismissed").strip())
    assert hub.visitor("dismissed").get("admin").status_code == 403


def test_an_administrator_makes_another_one_in_the_hub(hub: Hub, admin: Visitor) -> None:
    """The hub's database says who is an administrator; a reset link takes nothing away."""
    hub.visitor().set_password(hub.accounts("invite", "second").strip())
    admin.api("PATCH", "users/second", {"admin": True})
    hub.visitor().set_password(hub.accounts("reset", "second").strip())

    assert hub.visitor("second").get("admin").status_code == 200


def test_nobody_signs_up_alone(hub: Hub, admin: Visitor) -> None:
    """There is no such page, which is said, and a password without an account opens nothing."""
    page = hub.visitor().get("signup")
    assert page.status_code == 404
    assert "There is no such page" in page.text
    assert hub.visitor().sign_in("stranger", PASSWORD).status_code == 403


def test_who_has_no_system_account_is_told_why_there_is_no_notebook(
    hub: Hub, admin: Visitor
) -> None:
    """A second person never gets a notebook under the first one's uid."""
    hub.visitor().set_password(hub.accounts("invite", "tfc-nobody-of-this-name").strip())
    answer = hub.visitor("tfc-nobody-of-this-name").get("spawn")

    assert answer.status_code == 403
    reason = "has no system account" if os.geteuid() == 0 else "was started by"
    assert reason in answer.text


def test_an_unknown_account_cannot_be_reset(hub: Hub, admin: Visitor) -> None:
    """The command says which there are."""
    assert "there is no account" in hub.accounts("reset", "nobody-here")


def test_what_the_hub_keeps_is_its_owners_alone(hub: Hub, admin: Visitor) -> None:
    """The folder and the accounts can be read by nobody else, and hold no password."""
    folder = hub.state / "hub"
    file = folder / "accounts.json"

    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in file.read_text()
    assert hub.link.partition("code=")[2] not in hub.said()
