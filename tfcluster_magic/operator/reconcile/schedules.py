"""The control loop over TFClusterSchedules: it launches one run for each due time, and stops the
runs that a later run replaces.

First the name of a due time's run is written into the status; the write fails if another client has
changed the schedule since it was read. Then the run is created under this name. After a crash, the
next operator creates the run unless a run with this name and the labels of the due time exists. So
even two simultaneous operators launch only one run for a due time. A run that this process created,
or that its watch has seen, is not created again if the user deletes it immediately. A run is
created twice only if three things happen: the operator creates the run, it is killed before it has
recorded the creation, and the run is deleted before the next operator starts. A schedule takes a
turn only at its due times, when one of its runs ends, when the schedule itself changes, and when
another schedule changes for which it waits.

If a schedule is `advised`, its next run gets the CPU, memory and other options that suit the usage
of its last run. That usage is examined when all tasks of the last run are gone, or at the next
launch if that comes first. If the advised options would prevent a launch, the run is launched
without them.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone

import msgspec
from msgspec.structs import replace

from ...errors import InvalidRequest, one_line
from ...kube.api import access, labels
from ...kube.api.client import Api, ApiError, Object, find_object, is_deleted, path
from ...kube.api.informer import CacheUpdate, Informer
from ...kube.controller.work_queue import KeyedWorkers
from ...kube.objects import custom_resource, schedule_resource
from ...schedules import (
    Occurrence,
    OccurrenceState,
    Schedule,
    ScheduleRules,
    ScheduleStatus,
    placeholders,
)
from ...schedules.cron import CronTimes
from ...schedules.due import (
    FindSchedule,
    RunOutcome,
    ScheduleTurn,
    circle_of,
    due,
    failed,
    launched,
    no_room,
    previous_success,
    run_to_judge,
    settle,
)
from ...spec import (
    API_VERSION,
    KIND,
    AdvisedOption,
    Message,
    Phase,
    ScheduledRun,
    Spec,
    Stop,
    TFCluster,
    names,
)
from ...usage import schedule_advice
from ..cluster_state import Key
from ..scheduling.launch_queue import phase_of
from .usage_reports import UsageReports

RESOURCE = "tfclusterschedules"
LONGEST_SLEEP = 60.0
"""Maximum seconds for which a schedule waits before it reads the clock again, because the system
clock may be set to another time.
"""
AGAIN = 0.05
"""Seconds until a turn is repeated after another client changed the schedule."""
NAME_TRIES = 5
"""Maximum number of names that one turn tries for a run, because a user may have launched a run
with the name that comes next.
"""
_REPLACED = "its schedule replaces it by the run of a later due time"
_FINAL = {phase.value for phase in Phase if phase.is_final}

log = logging.getLogger(__name__)


class ScheduleConflict(Exception):
    """Another client changed the schedule, so our copy is outdated."""


class ScheduleClock:
    """The clock of schedules; tests use a faster one."""

    def now(self) -> float:
        """Return the time, in seconds since 1970."""
        return time.time()

    def seconds_until(self, at: float) -> float:
        """Return the seconds to wait until a time."""
        return at - self.now()


class ScheduleController:
    """The controller of all schedules of a Kubernetes cluster, or of one namespace.

    Args:
        api: the connection to the API server.
        namespace: the namespace of the schedules; empty for all.
        runs: the cache of all runs.
        pods: the cache of the pods of all tasks.
        leads: returns whether this process is the leader, which alone may act.
        last_number: returns the highest number of a deleted run, by namespace and name.
        why_not: called with a namespace, a spec, and the same spec with the advised options. If a
            run with the advised options would be refused or have to wait, and a run without them
            would not, it returns the reason; otherwise None.
        clock: the clock of the schedules.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        runs: Informer,
        pods: Informer,
        leads: Callable[[], bool],
        last_number: Callable[[str, str], int],
        why_not: Callable[[str, Spec, Spec], Message | None],
        clock: ScheduleClock,
    ) -> None:
        self._api, self._runs, self._leads, self._clock = api, runs, leads, clock
        self._last_number, self._why_not = last_number, why_not
        self.reports = UsageReports(pods, self._follows)
        self.turns: KeyedWorkers[Key] = KeyedWorkers(
            self._take_turn, leads, self._log_failure, share=lambda key: key[0]
        )
        self.cache = Informer(
            api,
            path(RESOURCE, namespace),
            optional=True,  # the installed CRDs may be older and lack schedules
            trim=self._trim,
            changed=self._changed,
        )
        self.launches = 0
        self._lock = threading.Lock()
        self._followed: dict[Key, Key] = {}
        """The schedule of each active run, including runs about to be created."""
        self._runs_of: dict[Key, set[Key]] = {}
        """The active runs of each schedule, including runs about to be created."""
        self._created: dict[Key, ScheduledRun] = {}
        """The schedule and due time of each active run that this process created."""
        self._deleted: dict[Key, CacheUpdate] = {}
        """The deletion of each run that was active when it was deleted."""
        self._ended: set[Key] = set()
        """The schedules that need a turn: since the last turn, one of their runs has ended, or a
        schedule that they wait for has changed.
        """
        self._awaiting: dict[Key, set[Key]] = {}
        """By schedule: the schedules that wait for it (`after`)."""
        self._idle: dict[Key, tuple[object, float, float]] = {}
        """For each schedule: its version at its last turn, the time of that turn, and the time
        until which nothing is due.
        """
        self._own: dict[Key, Object] = {}
        """The state of each schedule after our last write, until the cache has that state."""

    def follow(self) -> None:
        """Start the watch."""
        self.cache.start()

    def begin(self) -> None:
        """Start the turns, and queue every schedule once."""
        for found in self.cache.every():
            self.turns.work.add((found["metadata"]["namespace"], found["metadata"]["name"]))
        self.turns.start()

    def end(self, seconds: float) -> None:
        """Stop the watch and the turns; turns in progress have `seconds` to finish."""
        self.cache.stop()
        self.turns.stop(seconds)

    def run_changed(self, update: CacheUpdate) -> None:
        """Handle a change of a run; the end of a run causes a turn of its schedule."""
        if update.new is not None and phase_of(update.new) not in _FINAL:
            return
        head = update.object["metadata"]
        run = head["namespace"], head["name"]
        with self._lock:
            schedule = self._followed.get(run)
            if schedule is not None:
                self._ended.add(schedule)
                if update.new is None:
                    self._deleted[run] = update
        if schedule is not None:
            self.turns.work.add(schedule)

    # -- the cache ---------------------------------------------------------------------------------

    def _trim(self, found: Object) -> Object:
        head = found["metadata"]
        return schedule_resource.trim(found, self.cache.get(head["namespace"], head["name"]))

    def _changed(self, update: CacheUpdate) -> None:
        head = update.object["metadata"]
        key = (head["namespace"], head["name"])
        with self._lock:
            waiting = set(self._awaiting.get(key, ()))
            self._ended |= waiting
        for each in (key, *waiting):
            self.turns.work.add(each)

    def _await(self, key: Key, names: Iterable[str]) -> None:
        """Record that the schedule `key` waits for the schedules `names`. When one of these
        schedules changes, the schedule `key` takes a turn.
        """
        with self._lock:
            for each in [other for other, waiting in self._awaiting.items() if key in waiting]:
                self._awaiting[each].discard(key)
                if not self._awaiting[each]:
                    del self._awaiting[each]
            for name in names:
                self._awaiting.setdefault((key[0], name), set()).add(key)

    def _newest(self, key: Key) -> Object | None:
        """Return the newest known state of a schedule: the cached state, or the state that we have
        written if the cache does not have it yet.
        """
        cached, own = self.cache.get(*key), self._own.get(key)
        if own is not None and cached is not None:
            of, and_of = own["metadata"], cached["metadata"]
            newer = int(of["resourceVersion"]) > int(and_of["resourceVersion"])
            if of["uid"] == and_of["uid"] and newer:
                return own
        self._own.pop(key, None)
        return cached

    def _forget(self, key: Key) -> None:
        self._follow_runs(key, ())
        self._await(key, ())
        self._idle.pop(key, None)
        self._own.pop(key, None)
        with self._lock:
            self._ended.discard(key)

    def _follow_runs(self, key: Key, runs: Iterable[Key]) -> None:
        now = set(runs)
        with self._lock:
            left = self._runs_of.pop(key, set()) - now
            for each in left:
                for known in (self._followed, self._created, self._deleted):
                    known.pop(each, None)
            if now:
                self._runs_of[key] = now
                self._followed.update(dict.fromkeys(now, key))
        for each in left:
            self.reports.forget(each)

    def _follows(self, run: Key) -> bool:
        with self._lock:
            return run in self._followed

    # -- a turn ------------------------------------------------------------------------------------

    def _take_turn(self, key: Key) -> float | None:
        try:
            return self._turn(key)
        except ScheduleConflict:
            log.info("%s/%s: somebody else wrote the schedule; reading it again", *key)
            found = find_object(self._api, path(RESOURCE, *key))
            if found is not None:
                self._own[key] = self._trim(found)
            return AGAIN

    def _log_failure(self, key: Key, error: Exception) -> None:
        if isinstance(error, ApiError):
            words = access.explain_api_error(error, "/".join(key), server=self._api.server)
            log.warning("schedule %s/%s: %s", *key, words)
        else:
            log.error("schedule %s/%s: the turn failed", *key, exc_info=error)

    def _turn(self, key: Key) -> float | None:
        """Take one turn; return the seconds until the next turn is due; None if only a change
        causes a turn.

        Raises:
            ApiError: the API did not answer; repeat the turn.
            ScheduleConflict: another client has changed the schedule.
        """
        cached = self._newest(key)
        if cached is None or is_deleted(cached):
            self._forget(key)
            return None
        with self._lock:
            has_ended = key in self._ended
            self._ended.discard(key)
        now, version = self._clock.now(), cached["metadata"]["resourceVersion"]
        idle = self._idle.get(key)
        if idle is not None and idle[0] == version and not has_ended:
            _version, then, wake_at = idle
            # if the clock was set back, `then <= now` is false, and the turn is taken
            if then <= now < wake_at:
                return self._rest(wake_at)
        self._idle.pop(key, None)  # if this turn fails, the next turn must not be skipped
        found = schedule_resource.whole(cached)
        # The cache of `find` ensures that this turn reads each of the other schedules only once.
        find = functools.cache(lambda name: self._find(key[0], name))
        schedule = self._checked(key, schedule_resource.read(found, now), find)
        if schedule.status.problem:
            found = self._write(key, found, schedule, now)
            self._idle[key] = found["metadata"]["resourceVersion"], now, math.inf
            return None
        return self._follow(key, found, schedule, now, find)

    def _checked(self, key: Key, schedule: Schedule, find: FindSchedule) -> Schedule:
        """Return the schedule. If it waits for itself, directly or through other schedules, its
        status gets a problem that says so.
        """
        rules = schedule.rules
        if not rules.after:
            with self._lock:
                if not any(key in each for each in self._awaiting.values()):
                    return schedule
        # Register for changes before the schedules are read, so that no change is missed.
        self._await(key, [each.schedule for each in rules.after])
        loop = circle_of(key[1], rules, find)
        if not loop or schedule.status.problem:
            return schedule
        text = "spec.after: these schedules wait for each other: " + " → ".join(loop)
        return schedule_resource.with_status(schedule, replace(schedule.status, problem=text))

    def _find(self, namespace: str, name: str) -> Schedule | None:
        """Return a schedule from the cache; None if it does not exist or is being deleted."""
        found = self.cache.get(namespace, name)
        if found is None or is_deleted(found):
            return None
        return schedule_resource.read(schedule_resource.whole(found), self._clock.now())

    def _follow(
        self, key: Key, found: Object, schedule: Schedule, now: float, find: FindSchedule
    ) -> float | None:
        """Take a turn of a valid schedule."""
        rules, status = schedule.rules, schedule.status
        self._follow_runs(key, _followed_runs(key, rules, status))
        running = [o.run for o in status.occurrences if o.state is OccurrenceState.RUNNING]
        outcomes = {run: self._outcome(key[0], run) for run in running}
        status = settle(rules, status, outcomes, now)
        turn = due(rules, status, now, find)
        status = self._with_names(key, self._judged(key, schedule, turn))
        found = self._write(key, found, schedule_resource.with_status(schedule, status), now)
        for run in turn.stop:
            self._stop(key, run)
        launching = [o for o in status.occurrences if o.state is OccurrenceState.LAUNCHING]
        if launching:
            self._launch_all(key, found, schedule, launching)
            return 0.0  # take the next turn at once, because a launched run may have ended already
        wake_at = math.inf if turn.wake_at is None else turn.wake_at
        self._idle[key] = found["metadata"]["resourceVersion"], now, wake_at
        return self._rest(wake_at)

    def _rest(self, wake_at: float) -> float | None:
        if wake_at == math.inf:
            return None
        return max(0.0, min(LONGEST_SLEEP, self._clock.seconds_until(wake_at)))

    def _outcome(self, namespace: str, run: str) -> RunOutcome:
        """Return the state of a schedule's run, and why it failed. Raises ApiError."""
        found = cached = self._runs.get(namespace, run)
        phase = None if found is None else phase_of(found)
        if (phase in _FINAL and phase != Phase.SUCCEEDED.value) or phase is None:
            # Read from the API: the cache may lack a run that was launched just now, and lacks the
            # reasons of ended runs.
            found = find_object(self._api, path("tfclusters", namespace, run))
        if found is None:
            return self._outcome_of_deleted((namespace, run), cached)
        status = custom_resource.read_status(found)
        if not status.phase.is_final or status.phase is Phase.SUCCEEDED:
            return RunOutcome(status.phase)
        return RunOutcome.ended(run, status)

    def _outcome_of_deleted(self, run: Key, cached: Object | None) -> RunOutcome:
        """Return the outcome of a deleted run, from the last state that the watch has observed."""
        with self._lock:
            seen = self._deleted.get(run)
        last = cached if seen is None else seen.object
        if last is None:
            return RunOutcome(None)
        phase = custom_resource.read_status(last).phase
        if phase.is_final:
            words = Message("ScheduleRunDeleted", {"name": run[1]})
            return RunOutcome(phase, words if phase is Phase.FAILED else None)
        if seen is None or not seen.observed:
            return RunOutcome(None)
        return RunOutcome(Phase.STOPPED, Message("ScheduleRunRemoved", {"name": run[1]}))

    def _write(self, key: Key, found: Object, schedule: Schedule, now: float) -> Object:
        """Write the status if it differs from the one in `found`; return the resulting object,
        without its template.

        Raises:
            ApiError: the API refuses.
            ScheduleConflict: another client has changed the schedule.
        """
        wanted = schedule_resource.write_status(found, schedule, now)
        if wanted == (found.get("status") or {}):
            return found
        version = found["metadata"]["resourceVersion"]
        operations: list[Object] = [
            {"op": "add", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/status", "value": wanted},
        ]
        try:
            answer = self._api.patch(path(RESOURCE, *key, "status"), operations)
        except ApiError as error:
            if error.status == 409:
                raise ScheduleConflict from None
            if error.gone:
                raise ScheduleConflict from None  # the schedule was deleted
            raise
        self._own[key] = cached = self._trim(answer)
        return schedule_resource.whole(cached)

    # -- runs --------------------------------------------------------------------------------------

    def _judged(self, key: Key, schedule: Schedule, turn: ScheduleTurn) -> ScheduleStatus:
        """Return the status of a turn. If the usage of the newest ended run can be examined now,
        the status has new advice: options for the next run. The usage can be examined when all
        tasks of the ended run are gone, or when the next run is about to be launched. Raises
        ApiError.
        """
        status = turn.status
        run = run_to_judge(schedule.rules, status)
        cached = self._runs.get(key[0], run) if run else None
        waits = cached is not None and not custom_resource.is_released(cached)
        if not run or (waits and not turn.launch):
            return status
        found = find_object(self._api, path("tfclusters", key[0], run))
        try:
            record = None if found is None else custom_resource.read(found)
        except InvalidRequest:  # a client has altered the record of the run
            record = None
        if record is None or not _is_of(record, schedule):
            return schedule_advice.judge(status, run, None, {})
        samples = self.reports.samples((key[0], run), record.metadata.uid)
        return schedule_advice.judge(status, run, record, samples)

    def _advice(
        self, key: Key, whole: Object, schedule: Schedule, status: ScheduleStatus
    ) -> tuple[Sequence[AdvisedOption], Message | None]:
        """Return the options that the next run gets because of advice, and a message about them. If
        the run could not be launched with these options, return no options, and a message that says
        so.
        """
        if not schedule.rules.advised or not status.advised:
            return (), None
        own, problems = schedule_resource.read_template(whole)
        advised = () if problems else schedule_advice.in_force(own, status.advised)
        if not advised:
            return (), None
        why = self._why_not(key[0], own, schedule_advice.with_advice(own, advised))
        if why is not None:
            return (), schedule_advice.refusal(advised, why)
        return advised, schedule_advice.changes(advised)

    def _with_names(self, key: Key, status: ScheduleStatus) -> ScheduleStatus:
        """Return the status with a name for each run that is about to be launched."""
        for each in status.occurrences:
            if each.state is OccurrenceState.LAUNCHING and not each.run:
                run = names.run_name(key[1], self._next_number(key, status))
                status = launched(status, each, run, self._clock.now(), created=False)
        return status

    def _next_number(self, key: Key, status: ScheduleStatus) -> int:
        """Return a number for the next run that no existing or deleted run of this name has."""
        found = [each["metadata"]["name"] for each in self._runs.of(key[0])]
        found += [run for o in status.occurrences for run in (o.run, *o.earlier)]
        split = (names.parse_ref(each) for each in found if each.startswith(f"{key[1]}-"))
        numbers = (number for cluster, number in split if cluster == key[1] and number)
        return 1 + max((self._last_number(*key), *numbers))

    def _stop(self, key: Key, run: str) -> None:
        """Stop a run through `spec.stop`, as its owner would."""
        cached = self._runs.get(key[0], run)
        if cached is not None and (cached.get("spec") or {}).get("stop"):
            return
        stop = Stop(reason=_REPLACED, by=f"schedule {key[1]}", at=time.time())
        try:
            self._api.merge(
                path("tfclusters", key[0], run), {"spec": custom_resource.write_stop(stop)}
            )
        except ApiError as error:
            if error.unanswered or error.status == 409:
                raise
            if not error.gone:  # the API refused the stop, and the run still exists
                log.warning("%s/%s: it is not stopped: %s", key[0], run, error.message)

    def _launch_all(
        self, key: Key, found: Object, schedule: Schedule, launching: Sequence[Occurrence]
    ) -> None:
        """Create the runs that the status names, and record the result of each.

        Raises:
            ApiError: the API did not answer; repeat the turn.
            ScheduleConflict: another client has changed the schedule.
        """
        whole = find_object(self._api, path(RESOURCE, *key))
        if whole is None or whole["metadata"]["uid"] != schedule.uid or is_deleted(whole):
            raise ScheduleConflict
        for place, each in enumerate(launching):
            for _try in range(NAME_TRIES):
                status = schedule_resource.read(found, self._clock.now()).status
                current = next(o for o in status.occurrences if o.key == each.key)
                if not self._leads():
                    raise ScheduleConflict
                after, ours = self._launch(key, whole, schedule, status, current)
                now = self._clock.now()
                tried = next(o for o in after.occurrences if o.key == each.key)
                is_full = tried.state is OccurrenceState.WAITING
                # If there are not enough resources for this due time, the later due times wait too.
                if is_full and tried.reason is not None:
                    for other in launching[place + 1 :]:
                        after = no_room(after, other, tried.reason, now)
                told = schedule_resource.with_status(schedule, after)
                found = self._write(key, found, told, now)
                if is_full:
                    return
                if ours:
                    break

    def _launch(
        self,
        key: Key,
        whole: Object,
        schedule: Schedule,
        status: ScheduleStatus,
        occurrence: Occurrence,
    ) -> tuple[ScheduleStatus, bool]:
        """Create the run of a due time. Return a pair: the new status, and False if another run has
        the name, so that another name must be tried. Raises ApiError if the API did not answer.
        """
        advised, advice = self._advice(key, whole, schedule, status)
        occurrence = replace(occurrence, advice=advice)
        body = self._run_of(whole, schedule, status, occurrence, advised)
        run = key[0], occurrence.run
        self._follow_runs(key, _followed_runs(key, schedule.rules, status))
        known = self._created_before(run, custom_resource.read_scheduled(body["metadata"]))
        if known is not None:
            occurrence, now = _as_launched(occurrence, known), self._clock.now()
            return launched(status, occurrence, occurrence.run, now, created=True), True
        try:
            try:
                self._api.create(path("tfclusters", key[0]), body)
            except ApiError as error:
                if not advised or error.unanswered or error.status == 409:
                    raise
                told = schedule_advice.refusal(advised, self._refusal(key, error))
                occurrence = replace(occurrence, advice=told)
                body = self._run_of(whole, schedule, status, occurrence, ())
                self._api.create(path("tfclusters", key[0]), body)
        except ApiError as error:
            now = self._clock.now()
            if error.reason == "AlreadyExists":
                there = find_object(self._api, path("tfclusters", *run))
                if there is None:
                    # The run was deleted just now. The next turn knows from the watch whether it
                    # was the run of this due time.
                    raise ScheduleConflict from None
                if not _is_launch(there, body):
                    after = 1 + _number_of(occurrence.run)
                    name = names.run_name(key[1], max(after, self._next_number(key, status)))
                    return launched(status, occurrence, name, now, created=False), False
                occurrence = _as_launched(
                    occurrence, custom_resource.read_scheduled(there["metadata"])
                )
            elif error.unanswered or error.status == 409:
                # 409 is a conflict, for example if the quota changed at the same time: try again.
                raise
            else:
                why = self._refusal(key, error)
                log.warning("%s/%s: not launched: %s", key[0], occurrence.run, why)
                told = Message("ScheduleNotLaunched", {"why": why})
                occurrence = replace(occurrence, advice=None)
                if error.status in (401, 403, 404) and not _is_denied(error):
                    # a later try may succeed: a quota is exceeded, or a right is missing
                    return no_room(status, occurrence, told, now), True
                return failed(schedule.rules, status, occurrence, told, now), True
        now = self._clock.now()
        if (scheduled := custom_resource.read_scheduled(body["metadata"])) is not None:
            # remember the run, because a user may delete it before the status is written
            self._created[run] = scheduled
        self.launches += 1
        late = now - max(occurrence.due, occurrence.not_before or 0.0)
        log.info("%s/%s: launched %.3f s after its due time", key[0], occurrence.run, late)
        return launched(status, occurrence, occurrence.run, now, created=True), True

    def _created_before(self, run: Key, wanted: ScheduledRun | None) -> ScheduledRun | None:
        """Return the schedule and the due time for which the run `run` was created, if they are the
        same as in `wanted`. Return None if they differ, or if the run is not known. A run is known
        if this process has created it or its watch has seen it, even if the run has been deleted
        since.
        """
        with self._lock:
            created, deleted = self._created.get(run), self._deleted.get(run)
        seen = self._runs.get(*run) if deleted is None else deleted.object
        last = seen and custom_resource.read_scheduled(seen["metadata"])
        known = (each for each in (created, last) if each)
        return next((each for each in known if wanted and each.identity == wanted.identity), None)

    def _refusal(self, key: Key, error: ApiError) -> str:
        """Return the reason why the API refuses a run, on one line."""
        if error.status == 422:
            return one_line(error.message)
        return one_line(str(access.explain_api_error(error, "/".join(key))))

    def _run_of(
        self,
        whole: Object,
        schedule: Schedule,
        status: ScheduleStatus,
        occurrence: Occurrence,
        advised: Sequence[AdvisedOption],
    ) -> Object:
        """Return the TFCluster object of a due time's run, with the options that advice has
        changed.
        """
        local = CronTimes(schedule.rules.cron, schedule.rules.time_zone).local
        before = previous_success(status, occurrence.due)
        due_at = local(occurrence.due)
        times = {
            "scheduled_for": due_at,
            "previous_success": None if before is None else local(before),
        }
        scheduled = ScheduledRun(
            schedule=schedule.name,
            uid=schedule.uid,
            due=occurrence.due,
            attempt=occurrence.attempt,
            local=placeholders.iso_text(due_at),
            advised=tuple(advised) if schedule.rules.advised else None,
        )
        replicas = None
        if advised:
            own = schedule_resource.read_template(whole)[0]
            replicas = schedule_advice.with_advice(own, advised).replicas
        notes = {
            name: text
            for name, text in (whole["metadata"].get("annotations") or {}).items()
            if name in (custom_resource.WARNINGS, custom_resource.INFERRED)
        }
        if occurrence.advice is not None and not advised:
            warnings = custom_resource.read_launch_notes(whole["metadata"])[0]
            notes |= custom_resource.write_launch_notes([*warnings, str(occurrence.advice)], ())
        notes[custom_resource.SCHEDULED] = msgspec.json.encode(scheduled).decode()
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": occurrence.run,
                "labels": _marks(schedule, occurrence),
                "annotations": notes,
            },
            "spec": schedule_resource.run_spec(whole, times, replicas),
        }


def _marks(schedule: Schedule, occurrence: Occurrence) -> dict[str, str]:
    """Return the labels of a run that a schedule launches for a due time."""
    at = datetime.fromtimestamp(occurrence.due, timezone.utc)
    return {
        labels.SCHEDULE: schedule.name,
        labels.SCHEDULE_UID: schedule.uid,
        labels.DUE: f"{at:%Y%m%dT%H%M%SZ}",
    }


def _is_launch(there: Object, body: Object) -> bool:
    """Return whether the existing run `there` was created for the due time of `body`."""
    marks, wanted = there["metadata"].get("labels") or {}, body["metadata"]["labels"]
    if any(marks.get(key) != value for key, value in wanted.items()):
        return False
    found = custom_resource.read_scheduled(there["metadata"])
    ours = custom_resource.read_scheduled(body["metadata"])
    return found is not None and ours is not None and found.identity == ours.identity


def _as_launched(occurrence: Occurrence, run: ScheduledRun | None) -> Occurrence:
    """Return the occurrence of a due time whose run existed before the launch. Its message about
    advice lists the advised options with which that run was launched.
    """
    advised = run.advised if run is not None else None
    return replace(occurrence, advice=schedule_advice.changes(advised) if advised else None)


def _is_of(run: TFCluster, schedule: Schedule) -> bool:
    scheduled = run.metadata.scheduled
    return scheduled is not None and scheduled.uid == schedule.uid


def _followed_runs(key: Key, rules: ScheduleRules, status: ScheduleStatus) -> set[Key]:
    """Return the active runs of a schedule, including runs about to be created, and the run whose
    usage is examined next.
    """
    held = [each.run for each in status.occurrences if each.state.holds_run]
    return {(key[0], run) for run in (*held, run_to_judge(rules, status)) if run}


def _is_denied(error: ApiError) -> bool:
    """Return whether a policy or a webhook refused the run, so that another try is useless."""
    return " denied " in error.message


def _number_of(run: str) -> int:
    return names.parse_ref(run)[1] or 0
