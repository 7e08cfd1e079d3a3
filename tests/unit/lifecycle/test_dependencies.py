"""Runs that wait for other runs: the wait, its end, and waits that fail."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lifecycle_simulation import Story, spec_of

from tfcluster_magic.lifecycle.dependencies import MISSING_PATIENCE, circle_of
from tfcluster_magic.lifecycle.messages import with_first_reason
from tfcluster_magic.spec import AwaitedOutcome, Dependency, Lifecycle, Phase, Reason, Status

SUCCESS, END = AwaitedOutcome


def on(*runs: str, until: AwaitedOutcome = SUCCESS) -> tuple[Dependency, ...]:
    return tuple(Dependency(run=run, until=until) for run in runs)


def test_a_run_starts_when_all_that_it_waits_for_have_succeeded() -> None:
    """A waiting run is Queued and names the runs that it still waits for. A run that has succeeded
    still counts after its deletion.
    """
    story = Story(spec_of(after=on("prepare-3", "clean-1")))
    story.sees("prepare-3", Phase.RUNNING)
    story.sees("clean-1", Phase.QUEUED)
    assert story.outcome[:2] == (Phase.QUEUED, Reason.QUEUED)
    assert story.status.message == "Waiting for prepare-3 to succeed and clean-1 to succeed."
    story.sees("prepare-3", Phase.SUCCEEDED)
    assert story.status.message == "Waiting for clean-1 to succeed."
    del story.runs["prepare-3"]
    story.passes(1)
    assert story.status.phase is Phase.QUEUED and not story.tasks
    story.sees("clean-1", Phase.SUCCEEDED)
    assert story.status.phase is Phase.RUNNING
    assert [each.run for each in story.status.awaited] == ["prepare-3", "clean-1"]


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.FAILED, "prepare-3 failed, so this run did not start."),
        (Phase.STOPPED, "prepare-3 was stopped, so this run did not start."),
    ],
)
def test_a_run_fails_with_the_one_that_was_to_succeed(phase: Phase, words: str) -> None:
    """If an awaited run does not succeed, the waiting run fails. The reason names the awaited run
    and the command that starts the run without a wait.
    """
    story = Story(spec_of(after=on("prepare-3")))
    story.sees("prepare-3", phase, released=False)
    assert story.outcome[:2] == (Phase.FAILED, Reason.DEPENDENCY_FAILED)
    said = f"{words} To start it without waiting: `tfcluster rerun digits-2`."
    assert story.status.message == said
    assert story.decision.done and not story.tasks


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED])
def test_a_run_may_wait_for_any_end(phase: Phase) -> None:
    """With `end`, a run starts after any end of the awaited run; after a failure, it starts once no
    task of the awaited run can write files.
    """
    story = Story(spec_of(after=on("prepare-3", until=END)))
    story.sees("prepare-3", phase, released=False)
    if phase is not Phase.SUCCEEDED:
        assert story.status.message == "Waiting for prepare-3 to end."
    story.sees("prepare-3", phase)
    assert story.status.phase is Phase.RUNNING


@pytest.mark.parametrize("anew", [False, True])
def test_a_deleted_run_is_waited_for_in_vain(anew: bool) -> None:
    """If an awaited run is deleted, the waiting run fails, even if another run gets the name of the
    deleted run.
    """
    story = Story(spec_of(after=on("prepare-3", until=END)))
    story.sees("prepare-3", Phase.RUNNING)
    story.runs.clear()
    if anew:
        story.sees("prepare-3", Phase.SUCCEEDED, uid="another")
    story.passes(0)
    assert story.status.reason is Reason.DEPENDENCY_FAILED
    assert "prepare-3 was deleted" in story.status.message


def test_a_run_that_never_appears_is_given_up() -> None:
    """Two manifests may be applied in any order, so an unknown name is awaited for a while; if it
    stays unknown, the wait fails.
    """
    story = Story(spec_of(after=on("prepare-3")))
    wait = "Waiting for prepare-3 to succeed (there is no run prepare-3 yet)."
    assert story.status.message == wait
    assert story.decision.wake_at == story.now + MISSING_PATIENCE
    story.passes(MISSING_PATIENCE - 1)
    assert story.status.phase is Phase.QUEUED
    story.passes(1)
    assert story.status.reason is Reason.DEPENDENCY_FAILED
    assert story.status.message.startswith("There was no run prepare-3 for 1m")


def test_runs_that_wait_for_each_other_end() -> None:
    """Runs that wait for each other in a circle fail, and the message names the circle."""
    story = Story(spec_of(after=on("prepare-3")))
    story.circle = ("digits-2", "prepare-3", "digits-2")
    story.sees("prepare-3", Phase.QUEUED)
    assert story.status.reason is Reason.DEPENDENCY_FAILED
    assert "wait for each other" in story.status.message
    assert "digits-2, prepare-3, digits-2" in story.status.message


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ((), "Checking whether there is room."),
        (on("prepare-3"), "Waiting for prepare-3 to succeed."),
        (on("clean-1"), "Checking whether there is room."),
    ],
)
def test_a_new_run_says_why_it_is_queued(after: tuple[Dependency, ...], message: str) -> None:
    """A run that was just recorded has a message before its first turn; clean-1 has succeeded."""
    status = with_first_reason(
        spec_of(after=after), Status(Phase.QUEUED, Reason.QUEUED), {"clean-1"}
    )
    assert status.message == message


def test_the_wait_for_room_begins_when_the_wait_for_runs_is_over() -> None:
    """`queueTimeout` limits only the wait for free resources, not the wait for other runs."""
    spec = spec_of(lifecycle=Lifecycle(queue_timeout=50), after=on("prepare-3"))
    story = Story(spec, admitted=False)
    story.sees("prepare-3", Phase.RUNNING)
    story.passes(500)
    story.sees("prepare-3", Phase.SUCCEEDED)
    assert story.status.message == "Checking whether there is room."
    story.passes(49)
    assert story.status.phase is Phase.QUEUED
    story.passes(1)
    assert story.status.reason is Reason.QUEUE_TIMEOUT


names = st.sampled_from("abcdef")


@given(st.dictionaries(names, st.lists(names, max_size=3)), names)
def test_a_circle_is_found_if_there_is_one(waits: Mapping[str, Sequence[str]], name: str) -> None:
    """A reported circle is a real circle. If no circle is reported, no run waits for itself, not
    even through other runs.
    """
    circle = circle_of(name, lambda run: waits.get(run, ()))
    reached, todo = set[str](), [name]
    while todo:
        for other in waits.get(todo.pop(), ()):
            if other not in reached:
                reached.add(other)
                todo.append(other)
    assert bool(circle) is (name in reached)
    if circle:
        assert circle[0] == circle[-1] == name
        assert all(b in waits[a] for a, b in itertools.pairwise(circle))
