"""The ledger of one user: every run counts once, no hours are lost, and the size of the ledger is
bounded.
"""

from __future__ import annotations

import random
from datetime import datetime, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcluster_magic.output.documents import unused_table
from tfcluster_magic.quota import ledger
from tfcluster_magic.quota.ledger import AccountedRun, Hours, Ledger
from tfcluster_magic.spec import Usage

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc).timestamp()
LAST = "2026-11-22"


def run(
    seconds: float = 3600,
    cluster: str = "digits",
    group: str = "",
    start: float = NOON,
    **more: float,
) -> AccountedRun:
    """Return a run of one worker that used two cores and a GPU for `seconds`."""
    end = start + seconds
    held = ledger.update_usage(
        None, [("worker", start, end)], end, {"worker": 2.0}, more.get("used")
    )
    assert held is not None
    return AccountedRun(cluster=cluster, usage=held, gpus={"worker": 1}, group=group)


def total(told: Ledger | ledger.HoursByDay) -> Hours:
    """Return all hours in the ledger."""
    days = told.days if isinstance(told, Ledger) else told
    found = Hours()
    for groups in days.values():
        for clusters in groups.values():
            for held in clusters.values():
                found += held
    return found


def test_a_run_counts_once_however_often_it_is_written_down() -> None:
    """Writing a run again, as after a restart, changes nothing."""
    once = ledger.end_run(Ledger(), "a", run(), NOON + 4000)
    assert ledger.end_run(once, "a", run(), NOON + 5000) is once
    assert ledger.begin_run(once, "a", run()) is once
    assert total(once) == Hours(cpu=2.0, gpu=1.0)


def test_a_run_whose_record_goes_unseen_counts_until_its_beginning_at_least() -> None:
    """If the record of a run was deleted before its end was seen, the usage that was noted at the
    run's start counts.
    """
    begun = ledger.begin_run(Ledger(), "a", run(60))
    assert total(begun) == Hours()
    over = ledger.end_run(begun, "a", None, NOON + 100)
    assert total(over).cpu == pytest.approx(120 / 3600)
    assert not over.begun
    assert ledger.end_run(over, "a", run(), NOON) is over


def test_a_run_is_remembered_as_long_as_it_has_a_record() -> None:
    """A run is remembered while it has a record and for a day longer, so that an outdated list does
    not count it again.
    """
    told = ledger.end_run(ledger.end_run(Ledger(), "a", run(), NOON), "b", run(), NOON)
    later = NOON + ledger.UID_RETENTION + 1
    assert ledger.forget_runs(told, {"a", "b"}, later) is told
    assert ledger.forget_runs(told, set(), NOON + 100) is told
    assert set(ledger.forget_runs(told, {"a"}, later).counted) == {"a"}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefgh"),  # so few uids that some occur again
            st.sampled_from(["digits", "mnist", "x"]),
            st.sampled_from(["", "ml101"]),
            st.floats(0, 3 * 86400),
            st.floats(1, 2 * 86400),
        ),
        max_size=20,
    )
)
def test_a_windows_sum_is_the_sum_of_its_runs(
    told: list[tuple[str, str, str, float, float]],
) -> None:
    """For any grouping and any days, also after writes to disk, the hours of a window are the sum
    over its runs.
    """
    book, meant = Ledger(), {}
    for uid, cluster, group, start, seconds in told:
        one = run(seconds, cluster, group, NOON - 86400 * 6 + start)
        meant.setdefault(uid, one)
        book = ledger.end_run(book, uid, one, NOON)
        book = ledger.LEDGER_DECODER.decode(msgspec.json.encode(book))
    sums = (
        sum(ledger.seconds_by_type(one.usage, NOON).get("worker", 0) for one in meant.values())
        / 3600
    )
    for by in ("user", "group", "cluster", "day"):
        rows = ledger.hours_rows({"ada": book.days}, "2026-11-01", LAST, by)  # type: ignore[arg-type]
        assert sum(row.cpu for row in rows) == pytest.approx(2 * sums, abs=1e-6)
        assert sum(row.gpu for row in rows) == pytest.approx(sums, abs=1e-6)
    spent = ledger.daily_sums(book.days)
    assert sum(cpu for cpu, _gpu in spent.values()) == pytest.approx(2 * sums, abs=1e-6)


def test_a_window_leaves_out_other_days() -> None:
    """The first and the last day of a window count."""
    book = Ledger()
    for back in range(4):
        book = ledger.end_run(book, str(back), run(start=NOON - back * 86400), NOON + 4000)
    rows = ledger.hours_rows({"ada": book.days}, "2026-11-20", "2026-11-21", "day")
    assert [(row.key, row.cpu) for row in rows] == [("2026-11-20", 2.0), ("2026-11-21", 2.0)]


def test_what_runs_counts_until_now_without_a_write() -> None:
    """The hours of an active run until now are added to the hours that were read from the ledger;
    the ledger itself does not change.
    """
    held = Usage(at=NOON, holding={"worker": 2}, cores={"worker": 1.0})
    days = ledger.add_runs({}, [AccountedRun(cluster="digits", usage=held)], NOON + 1800)
    assert ledger.daily_sums(days) == {LAST: (1.0, 0.0)}


def test_clusters_of_two_people_are_two() -> None:
    """If hours are grouped by cluster, the key of a row is the user's name and the cluster's name;
    if there is only one user, it is the cluster's name.
    """
    days = ledger.add_run({}, run(), NOON + 4000)
    keys = [row.key for row in ledger.hours_rows({"ada": days, "bob": days}, LAST, LAST, "cluster")]
    assert keys == ["ada/digits", "bob/digits"]
    assert ledger.hours_rows({"": days}, LAST, LAST, "cluster")[0].key == "digits"


def test_what_nobody_measured_is_not_zero() -> None:
    """If only some runs were measured, the used hours are shown next to the hours that were
    measured.
    """
    unknown = ledger.hours_rows(
        {"ada": ledger.add_run({}, run(), NOON + 4000)}, LAST, LAST, "user"
    )[0]
    assert (unknown.used, unknown.measured) == (None, None)
    days = ledger.add_run({}, run(used=1800.0), NOON + 4000)
    both = ledger.hours_rows({"ada": ledger.add_run(days, run(), NOON + 4000)}, LAST, LAST, "user")[
        0
    ]
    assert (both.cpu, both.used, both.measured) == (4.0, 0.5, 2.0)


def test_the_most_unused_hours_are_first_on_request() -> None:
    """The row with the most unused hours is first; rows that were not measured are last."""
    days = {
        "ada": ledger.add_run({}, run(used=3500.0), NOON + 4000),
        "bob": ledger.add_run({}, run(used=600.0), NOON + 4000),
        "eve": ledger.add_run({}, run(), NOON + 4000),
    }
    rows = ledger.hours_rows(days, LAST, LAST, "user", "unused")
    assert [row.key for row in rows] == ["bob", "ada", "eve"]
    assert rows[0].unused == pytest.approx(2 - 1 / 6)
    assert rows[2].unused is None
    text = unused_table(rows, "user")
    assert [line.split()[0] for line in text.splitlines()] == ["USER", "bob", "ada", "eve", "in"]
    assert "8%" in text.splitlines()[1] and "not measured" in text.splitlines()[3]


def test_hours_without_a_name_say_what_they_are() -> None:
    """A row without a key is that of users without a group, or of clusters that are not listed."""
    (row,) = ledger.hours_rows({"ada": ledger.add_run({}, run(), NOON + 4000)}, LAST, LAST, "group")
    assert row.key == ""
    assert "(no group)" in unused_table([row], "group")
    assert "(other clusters)" in unused_table([row], "cluster")


def test_what_was_used_falls_on_the_days_on_which_it_was_held() -> None:
    """The used hours of a run that continues past midnight are divided among its days."""
    over = ledger.hours_by_day(run(86400, used=3600.0), NOON + 86400)
    assert [round(held.used, 9) for held in over.values()] == [0.5, 0.5]


def test_a_ledger_does_not_grow_without_end() -> None:
    """Three years of fifty clusters a day stay below the size limit of a Kubernetes object, without
    a lost hour.
    """
    chance, book = random.Random(1), Ledger()
    days = 1100
    for day in range(days):
        start = NOON + day * 86400
        many = {f"cluster-of-a-long-name-{chance.randrange(10**6)}": Hours(cpu=1.25, gpu=0.5)}
        if day > days - 100:
            many = {f"cluster-of-a-long-name-{n:04}": Hours(cpu=1.25, gpu=0.5) for n in range(50)}
        date = datetime.fromtimestamp(start, timezone.utc).date().isoformat()
        book = msgspec.structs.replace(book, days={**book.days, date: {"ml101": many}})
        book = ledger.end_run(book, str(day), run(cluster="one", start=start), start + 4000)
        book = ledger.forget_runs(book, (), start + 4000)
    assert len(msgspec.json.encode(book)) < 400_000
    assert len(book.days) <= ledger.MOST_LEDGER_DAYS + 1
    assert max(len(groups["ml101"]) for groups in book.days.values()) <= ledger.MOST_CLUSTERS + 1
    meant = days * 2.0 + 1.25 * (days - 99 + 99 * 50)
    assert total(book).cpu == pytest.approx(meant)
