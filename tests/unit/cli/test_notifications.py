"""`tfcluster notify` as a user types it, and the messages that arrive."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.command_line import Run, run
from support.command_line import here as programs
from support.fast_clock import FastClock
from support.message_receiver import Receiver, receiver
from support.polling import wait_until

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.local import schedule_store
from tfcluster_magic.backends.local.notification_store import DeliveryFile
from tfcluster_magic.cli.notifications import complete_rules
from tfcluster_magic.notifications import Deliveries, Delivery, DeliveryState, Occasion

__all__ = ["programs", "receiver", "run"]  # fixtures used by the tests below


@pytest.fixture
def here(programs: Path) -> Iterator[Path]:
    """Enter a folder with programs. The policy of notifications in its state folder allows
    receivers on this machine.
    """
    folder = programs.parent / "state" / "notifications"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "policy.yaml").write_text("privateNetworks: [127.0.0.0/8]\n")
    yield programs
    manager = ClusterManager()
    for each in manager.notifications.list():
        manager.notifications.remove(each.name)
    clock = FastClock(programs.parent / "state", 0.0, 1.0)
    wait_until(lambda: clock.pid() is None, "the clock has ended", 20)


def files_with(folder: Path, text: str) -> list[str]:
    found = []
    for path in filter(Path.is_file, folder.rglob("*")):
        with contextlib.suppress(OSError):
            found += [path.name] if text.encode() in path.read_bytes() else []
    return found


def test_a_failed_run_is_told_once(run: Run, here: Path, receiver: Receiver) -> None:
    """A failed run sends one message, with a sentence about the failure, the last lines, a link and
    a command.
    """
    (here / "hook.txt").write_text(receiver.url + "\n")
    folder = here.parent / "state" / "notifications"
    folder.chmod(0o755)  # the folder of a user who wrote a policy
    words = ["--webhook", "@hook.txt", "--lab", "https://hub.example/user/me"]
    added = run("notify", "add", "team", *words)
    assert added.code == 0, added.err
    assert "hook.txt is no longer needed: delete it" in added.err
    assert folder.stat().st_mode & 0o077 == 0
    (here / "hook.txt").unlink()
    assert run("notify", "test", "team").code == 0
    assert run("launch", "--workers", "1", "hello.py").code == 0
    assert run("launch", "--workers", "1", "fail.py").code == 0
    run("wait", "fail")
    wait_until(lambda: '"Sent"' in run("notify", "history", "fail", "-o", "json").out)
    test, told = receiver.bodies
    assert test["occasion"] == "test"
    assert (told["occasion"], told["about"]) == ("failed", "fail-1")
    assert "no such column" in told["message"]
    assert any("no such column" in line for line in told["lines"])
    assert told["link"] == "https://hub.example/user/me/lab?tfcluster=run:fail-1"
    assert told["command"] == "tfcluster rerun fail-1"
    assert "fail-1 failed" in run("notify", "history").out
    state = here.parent / "state"
    assert files_with(state, "tok-1234567") == ["rules.json"]
    assert (state / "notifications" / "rules.json").stat().st_mode & 0o077 == 0
    for form in ("table", "json", "yaml"):
        assert "tok-1234567" not in run("notify", "list", "-o", form).out
    assert run("notify", "remove", "team").code == 0
    assert "No rules yet" in run("notify", "list").out


def test_a_name_selects_the_messages_of_all_its_runs_and_of_its_schedule(
    run: Run, here: Path
) -> None:
    """`notify history flaky` lists the messages about each run and the schedule of this name, and
    `flaky-2` those about one run.
    """
    told = [
        Delivery(
            rule="team", rule_uid="u", event="e", about=about, occasion=Occasion.FAILED,
            title=f"about {about}", sentence="", at=1.0, noted_at=1.0, state=DeliveryState.SENT,
        )
        for about in ("flaky", "flaky-1", "flaky-2", "flaky-x-1", "other-1")
    ]  # fmt: skip
    DeliveryFile(here.parent / "state").change(lambda _kept: Deliveries(deliveries=tuple(told)))

    def listed(ref: str) -> list[str]:
        found = json.loads(run("notify", "history", ref, "-o", "json").out)
        return sorted(each["about"] for each in found)

    assert listed("flaky") == ["flaky", "flaky-1", "flaky-2"]
    assert listed("flaky-2") == ["flaky-2"]
    assert run("notify", "history", "flaky-3").code == 5


def test_a_receiver_that_is_down_gets_one_message_for_each_event(
    run: Run, here: Path, receiver: Receiver
) -> None:
    """A receiver that was down for ten minutes gets one message for each run, even if the clock
    process was killed again and again.
    """
    receiver.status = 503
    clock = FastClock(here.parent / "state", time.time(), 100.0)
    os.environ[schedule_store.NO_CLOCK] = "1"
    try:
        run("notify", "add", "team", "--on", "finished", "--webhook", receiver.url)
        clock.start()
        for name in ("one", "two"):
            run("launch", "--workers", "1", "--name", name, "hello.py")
            run("wait", name)
        for _kill in range(3):
            before = len(receiver.paths)
            wait_until(lambda before=before: len(receiver.paths) > before)
            clock.kill()
            clock.start()
        began = clock.now()
        wait_until(lambda: clock.now() > began + 600)
        assert receiver.bodies == []
        receiver.status = 200

        def all_sent() -> bool:
            told = json.loads(run("notify", "history", "-o", "json").out)
            return [each.get("state") for each in told] == ["Sent", "Sent"]

        wait_until(all_sent)
    finally:
        del os.environ[schedule_store.NO_CLOCK]
    assert sorted(each["about"] for each in receiver.bodies) == ["one-1", "two-1"]


def test_every_problem_is_named_and_no_secret_is(run: Run, here: Path) -> None:
    """A wrong rule is refused with the allowed values; the refusal does not show the rule's URL or
    secret.
    """
    for words, why in (
        (["team"], "either --webhook or --mail"),
        (["team", "--webhook", "ftp://example.com/tok-1234567"], "https://example.com/hook"),
        (["team", "--webhook", "https://u:tok-1234567@example.com/"], "without a name"),
        (["team", "--webhook", "https://hooks.slack.com/x", "--secret", "tok-1234567"], "feishu"),
        (["team", "--mail", "me@example.com"], "no mail server"),
        (["Team!", "--webhook", "https://example.com/tok-1234567"], "name"),
        (["team", "--webhook", "@gone.txt"], "gone.txt"),
    ):
        refused = run("notify", "add", *words)
        assert (refused.code, why in refused.err) == (2, True), refused.err
        assert "tok-1234567" not in refused.err + refused.out
    assert run("notify", "remove", "team").code == 5
    assert "No rules yet" in run("notify", "list").out


def test_names_are_completed_and_the_format_is_said(run: Run, here: Path) -> None:
    """A shell completes the names of rules. The format for a known host is inferred and printed."""
    added = run("notify", "add", "team", "--webhook", "https://oapi.dingtalk.com/robot/send?a=b")
    assert "in the format dingtalk" in added.err
    context = click.Context(click.Command("remove"))
    found = complete_rules(context, click.Option(["-x"]), "te")
    assert [item.value for item in found] == ["team"]


def test_a_refused_receiver_comes_with_the_file_that_allows_it(
    run: Run, here: Path, receiver: Receiver
) -> None:
    """A private address, and mail without a mail server, are refused at once; the refusal names the
    file and the field that would allow it.
    """
    file = here.parent / "state" / "notifications" / "policy.yaml"
    assert run("notify", "add", "team", "--webhook", receiver.url).code == 0
    file.unlink()
    for url in (receiver.url, "http://localhost:1/hook"):
        refused = run("notify", "add", "more", "--webhook", url)
        assert refused.code == 2
        assert f"privateNetworks of the policy does not name its network ({file})" in refused.err
    tested = run("notify", "test", "team").err
    assert f"privateNetworks of the policy does not name its network ({file})" in tested
    mail = run("notify", "add", "me", "--mail", "me@example.com").err
    assert f"the policy names no mail server (smtp) ({file})" in mail
