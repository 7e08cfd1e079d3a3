"""Cron expressions in a time zone: the times at which a schedule is due.

The functions have no side effects, and end in bounded time for any expression.

cronsim follows Debian's cron: when the clocks change, a job at a skipped fixed time runs right
after the change, and a job at a repeated fixed time runs only at the first of the two times. This
module decides which expressions are accepted, and ensures that no due time occurs twice.
"""

from __future__ import annotations

import difflib
import os
import zoneinfo
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from cronsim import CronSim, CronSimError

from ..errors import InvalidRequest, Problem
from ..i18n import _

FIELDS = 5
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WINDOWS = tuple(120.0 * 4**power for power in range(13))
"""Lengths in seconds of the periods in which `CronTimes.last` searches backwards for a due time:
first the last two minutes, then longer periods, up to 60 years.
"""


class CronTimes:
    """The due times of a cron expression in a time zone.

    Args:
        cron: five fields, or one of `ALIASES`.
        time_zone: an IANA name.

    Raises:
        InvalidRequest: the expression or the time zone is invalid, or the expression is never due.
    """

    def __init__(self, cron: str, time_zone: str) -> None:
        self._cron = ALIASES.get(cron.strip().lower(), cron)
        self.zone = read_zone(time_zone)
        rule = _(
            "write minute, hour, day of month, month and day of week, such as `0 2 * * *` for "
            "02:00 each day"
        )
        if len(self._cron.split()) != FIELDS or len(cron) > 256:
            raise _refused("--cron", cron, rule)
        try:
            first = next(iter(CronSim(self._cron, datetime(2000, 1, 1, tzinfo=timezone.utc))), None)
        except (CronSimError, ValueError, AssertionError, TypeError) as error:
            why = str(error).removeprefix("Bad ")
            if why == "day-of-month" and _may_never_come(self._cron):
                raise _never(cron) from None
            text = _("the field {field} is invalid; {rule}")
            raise _refused("--cron", cron, text.format(field=why, rule=rule)) from None
        if first is None:
            raise _never(cron)

    def after(self, at: float) -> Iterator[float]:
        """Yield the due times after `at`, in order, to the end of the calendar."""
        last = at
        try:
            found = CronSim(self._cron, datetime.fromtimestamp(at, self.zone))
            for each in found:
                moment = each.timestamp()
                if moment > last:  # two times inside a skipped hour are due at the same moment
                    last = moment
                    yield moment
        except (OverflowError, ValueError, OSError):
            return

    def next(self, at: float) -> float | None:
        """Return the first due time after `at`; None if there is none."""
        return next(self.after(at), None)

    def last(self, after: float, until: float) -> float | None:
        """Return the last due time in (`after`, `until`]; None if there is none."""
        for window in _WINDOWS:
            start = max(after, until - window)
            found = None
            for moment in self.after(start):
                if moment > until:
                    break
                found = moment
            if found is not None or start <= after:
                return found
        return None

    def count(self, after: float, until: float, most: int) -> int:
        """Return how many due times are in (`after`, `until`], at most `most`."""
        found = 0
        for moment in self.after(after):
            if moment > until or found >= most:
                break
            found += 1
        return found

    def local(self, at: float) -> datetime:
        """Return a time, given in seconds since 1970, as a datetime in the schedule's time zone."""
        return datetime.fromtimestamp(at, self.zone)


def _may_never_come(cron: str) -> bool:
    """Return whether an expression that cronsim refuses is correct but never due, such as one for
    30 February. To find out, the month is replaced by `*`: cronsim then accepts a correct
    expression.
    """
    fields = cron.split()
    try:
        CronSim(
            " ".join([*fields[:2], fields[2], "*", fields[4]]),
            datetime(2000, 1, 1, tzinfo=timezone.utc),
        )
    except (CronSimError, ValueError, AssertionError, TypeError):
        return False
    return True


def _never(cron: str) -> InvalidRequest:
    return _refused(
        "--cron", cron, _("it never matches a date: for example, there is no 30 February")
    )


def _refused(field: str, value: object, allowed: str) -> InvalidRequest:
    return InvalidRequest([Problem(field, value, allowed)], _("the schedule was refused"))


def read_zone(name: str) -> zoneinfo.ZoneInfo:
    """Return the time zone with this IANA name; raise InvalidRequest, with a similar name, if there
    is none.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # OSError is raised if the name is a folder of the database, such as `Asia`.
        close = difflib.get_close_matches(name, zoneinfo.available_timezones(), 1, cutoff=0.5)
        example = close[0] if close else "Asia/Shanghai"
        text = _("there is no such time zone; write an IANA name, such as {example}")
        raise _refused("--time-zone", name, text.format(example=example)) from None


def machine_zone() -> str:
    """Return the IANA name of this machine's time zone; UTC if it has none."""
    told = [os.environ.get("TZ", "").lstrip(":")]
    link = os.path.realpath("/etc/localtime")
    told.append(link.partition("/zoneinfo/")[2])
    try:
        told.append(Path("/etc/timezone").read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        told.append("")
    for name in told:
        if not name or os.path.isabs(name):
            continue
        try:
            return zoneinfo.ZoneInfo(name).key
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return "UTC"
