"""Schedules as text: a list, one schedule with its next due times, and the results of past due
times.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import islice

from ..errors import TFClusterError
from ..i18n import _, ngettext
from ..launch.launch_as_command import launch_argv, options_of
from ..schedules import Backfill, Occurrence, OccurrenceState, Schedule, ScheduledLaunch
from ..schedules.cron import CronTimes
from ..spec import Message
from ..spec.message_table import format_duration
from ..usage.schedule_advice import in_force
from .report import advised_words
from .text import PLAIN, Paint, one_line, table

_COLOURS = {
    OccurrenceState.WAITING: "yellow",
    OccurrenceState.LAUNCHING: "yellow",
    OccurrenceState.RUNNING: "cyan",
    OccurrenceState.RETRYING: "yellow",
    OccurrenceState.SUCCEEDED: "green",
    OccurrenceState.FAILED: "red",
    OccurrenceState.STOPPED: "dim",
    OccurrenceState.UNKNOWN: "yellow",
    OccurrenceState.SKIPPED: "dim",
    OccurrenceState.MISSED: "dim",
}
NEXT_SHOWN = 3


def next_times(schedule: Schedule, now: float, most: int = NEXT_SHOWN) -> list[str]:
    """Return the next due times in the schedule's zone; none while it is paused."""
    if schedule.status.paused is not None:
        return []
    times = CronTimes(schedule.rules.cron, schedule.rules.time_zone)
    after = max(now, schedule.status.cursor)
    return [f"{times.local(at):%Y-%m-%d %H:%M}" for at in islice(times.after(after), most)]


def _said(words: Message | str | None) -> str:
    try:
        return one_line(str(words or ""))
    except LookupError:
        # a newer version of TFCluster wrote a message that this version does not know
        return words.code if isinstance(words, Message) else ""


def state_word(schedule: Schedule, now: float) -> str:
    """Return the state of a schedule in a few words."""
    status = schedule.status
    if status.problem:
        return _("does not work")
    if status.paused is not None:
        return _("paused")
    try:
        coming = next_times(schedule, now, 1)
    except TFClusterError:
        return _("does not work")
    return coming[0] if coming else _("never")


def headline(schedule: Schedule, now: float, paint: Paint = PLAIN) -> str:
    """Return a sentence that says whether a schedule works and when it is due next."""
    status = schedule.status
    if status.problem:
        text = _("{name} does not work: {why}")
        return text.format(name=schedule.name, why=one_line(status.problem))
    if status.paused is not None:
        pause = status.paused
        why = _said(pause.reason) or _("no reason was given")
        text = _("{name} is {paused}: {why}")
        word = _("paused by {by}").format(by=one_line(pause.by)) if pause.by else _("paused")
        return text.format(name=schedule.name, paused=paint(word, "yellow"), why=why)
    text = _("{name} is due next at {time} ({zone})")
    coming = next_times(schedule, now, 1)
    when = coming[0] if coming else _("never")
    return text.format(name=schedule.name, time=when, zone=schedule.rules.time_zone)


def listing(
    schedules: Sequence[Schedule], now: float, paint: Paint = PLAIN, most: int | None = None
) -> str:
    """Return a table of schedules."""
    rows = [
        (
            each.name,
            one_line(each.rules.cron),
            each.rules.time_zone,
            state_word(each, now),
            _last_run(each),
            marks([one.state for one in each.status.occurrences[-10:]], paint),
        )
        for each in schedules
    ]
    head = (_("NAME"), _("CRON"), _("ZONE"), _("NEXT"), _("LAST RUN"), _("LAST TEN"))
    return table(head, rows, paint, most)


def _last_run(schedule: Schedule) -> str:
    ran = [each for each in schedule.status.occurrences if each.run]
    return max(ran, key=lambda each: each.changed_at).run if ran else "-"


_MARKS = {
    OccurrenceState.SUCCEEDED: "●",
    OccurrenceState.FAILED: "✗",
    OccurrenceState.STOPPED: "■",
    OccurrenceState.UNKNOWN: "?",
    OccurrenceState.SKIPPED: "○",
    OccurrenceState.MISSED: "○",
}


def marks(states: Iterable[OccurrenceState], paint: Paint = PLAIN) -> str:
    """Return a symbol for each of these states, such as ● for a success."""
    return "".join(paint.word(_MARKS.get(each, "…"), _COLOURS[each]) for each in states)


def schedule(each: Schedule, now: float, paint: Paint = PLAIN, most: int | None = None) -> str:
    """Return a schedule with its rules, its next due times and what it waits for."""
    rules, launch, status = each.rules, each.launch, each.status
    times = CronTimes(rules.cron, rules.time_zone)
    program = launch.spec.program
    what = program.source if program is not None else ""
    how = (
        _("read anew at each due time (--track)")
        if launch.track
        else _("the snapshot of {time}; `tfcluster schedule update {name}` takes a new one").format(
            time=f"{times.local(launch.taken_at):%Y-%m-%d %H:%M} ({rules.time_zone})",
            name=each.name,
        )
    )
    lines = [
        headline(each, now, paint),
        _fact(_("when"), f"{one_line(rules.cron)} ({rules.time_zone})"),
        _fact(_("next"), ", ".join(next_times(each, now)) or "-"),
        _fact(_("program"), f"{one_line(what)}, {how}"),
    ]
    lines += [_fact(_("options"), words) for words in _options(launch)]
    if program is not None and program.arguments:
        lines.append(_fact(_("arguments"), one_line(shlex.join(program.arguments))))
    lines.append(_fact(_("rules"), "; ".join(rule_words(each))))
    lines += [_fact(_("advised"), words) for words in _advised(each)]
    lines += [_fact(_("backfill"), backfill_words(each, b)) for b in status.backfills[-3:]]
    lines += [_fact(_("inferred"), _said(told)) for told in launch.inferred]
    lines += [_fact(_("warning"), one_line(text)) for text in launch.warnings]
    if status.occurrences:
        lines += ["", history(each, status.occurrences[:-11:-1], paint, most)]
    return "\n".join(lines)


def _fact(label: str, value: str) -> str:
    return f"  {label}: {value}"


def _options(launch: ScheduledLaunch) -> list[str]:
    """Return the options of the launch as the user typed them, in at most one line. The options of
    a project's file are among the inferred facts.
    """
    words = launch.words
    is_typed = words.options and not words.file
    options = words.options if is_typed else options_of(launch.spec)
    _verb, *flags = launch_argv(None, options=options, sha256=words.sha256, config=words.config)
    return [one_line(shlex.join(flags))] if flags else []


def _advised(each: Schedule) -> list[str]:
    """Return a line for each option that the next run gets because of advice, or a line that says
    why there is none. Return no lines if the schedule takes no advice.
    """
    status, launch = each.status, each.launch
    if not each.rules.advised:
        return []
    # With --track, the launch reads the project's options again, so it is not known yet whether the
    # advice will still apply to them.
    found = status.advised if launch.track else in_force(launch.spec, status.advised)
    if found:
        return [advised_words(one) for one in found]
    text = (
        _("the usage of {run} suggests no change") if status.judged else _("no run has ended yet")
    )
    return [text.format(run=status.judged)]


def rule_words(each: Schedule) -> list[str]:
    """Return the rules of a schedule, each with its option."""
    rules = each.rules
    told = [f"--overlap {rules.overlap.value}", f"--catch-up {rules.catch_up.value}"]
    if rules.max_parallel is not None:
        told.append(f"--max-parallel {rules.max_parallel}")
    if rules.deadline is not None:
        told.append(f"--deadline {format_duration(rules.deadline)}")
    if rules.retries:
        delays = " ".join(f"--retry-delay {format_duration(each)}" for each in rules.retry_delays)
        told.append(f"--retries {rules.retries} {delays}")
    told += ["--after-success"] if rules.after_success else []
    told += ["--advised"] if rules.advised else []
    told += [f"--after {each.words}" for each in rules.after]
    if rules.pause_after is not None:
        told.append(f"--pause-after {rules.pause_after}")
    return told


def backfill_words(schedule: Schedule, backfill: Backfill) -> str:
    """Return the progress of a backfill as text."""
    times = CronTimes(schedule.rules.cron, schedule.rules.time_zone)
    text = ngettext(
        "{start} to {end}: {done} of {count} due time done, {failed} without success",
        "{start} to {end}: {done} of {count} due times done, {failed} without success",
        backfill.total,
    )
    return text.format(
        start=f"{times.local(backfill.start):%Y-%m-%d %H:%M}",
        end=f"{times.local(backfill.end):%Y-%m-%d %H:%M} ({schedule.rules.time_zone})",
        done=backfill.done,
        count=backfill.total,
        failed=backfill.failed,
    )


def history(
    schedule: Schedule,
    occurrences: Sequence[Occurrence],
    paint: Paint = PLAIN,
    most: int | None = None,
) -> str:
    """Return a table of due times and their results, in the given order."""
    times = CronTimes(schedule.rules.cron, schedule.rules.time_zone)
    rows = []
    for each in occurrences:
        why = _said(each.reason)
        if each.missed:
            text = ngettext("and {count} before it", "and {count} before it", each.missed)
            why = " ".join(filter(None, (why, f"({text.format(count=each.missed)})")))
        why = " ".join(filter(None, (why, _said(each.advice))))
        rows.append(
            (
                f"{times.local(each.due):%Y-%m-%d %H:%M}",
                each.kind.value,
                paint.word(each.state.value, _COLOURS[each.state]),
                each.run or (each.earlier[-1] if each.earlier else "-"),
                str(each.attempt),
                why,
            )
        )
    due = f"{_('DUE')} ({schedule.rules.time_zone})"
    head = (due, _("KIND"), _("STATE"), _("RUN"), _("ATTEMPT"), _("WHY"))
    return table(head, rows, paint, most)
