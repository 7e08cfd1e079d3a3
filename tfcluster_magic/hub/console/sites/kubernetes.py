"""A Kubernetes cluster as a site of the console: runs, schedules, hours, storage, archives.

One list and one watch for each kind fill a cache (`kube/api/informer`), so that listing runs and
schedules makes no request. Everything else asks the API server. Each request for a change
contains the uid of the object, so that it cannot change another object of the same name. Requests
have timeouts and threads of their own; while a request hangs, pages show the data that was read
before.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ....backends import run_names
from ....backends.kubernetes.log_following import RunLogs
from ....backends.kubernetes.namespace_access import OPTIONS_KEY
from ....errors import BackendUnavailable, Conflict, NotFound, TFClusterError
from ....i18n import _
from ....kube import hour_ledgers
from ....kube.api import access, labels
from ....kube.api.client import Api, ApiError, Object, find_object, path
from ....kube.api.informer import Informer
from ....kube.api.resource_amounts import parse_amounts
from ....kube.objects import custom_resource
from ....output.usage import graphs_link
from ....quota import ledger
from ....quota.ledger import HoursByDay
from ....quota.preflight import Options
from ....quota.storage import FOLDER_NAMES, OWN_VOLUME_FACTOR, FolderUsage
from ....schedules import Pause
from ....spec import Stop, conversion, names
from ...tenancy.entitlements import HubPolicy
from ...tenancy.namespace_objects import HUB
from ...user_limits import NoSitePolicy
from . import kubernetes_archive, kubernetes_runs, kubernetes_schedules
from .base import (
    Leak,
    Missed,
    SiteHours,
    SiteLeaks,
    SiteRun,
    SiteRuns,
    SiteStorage,
    refuse_to_pause,
    refuse_to_resume,
)


def site_hours(
    api: Api,
    runs: Iterable[Object],
    users: Mapping[str, str],
    groups: Mapping[str, str],
    now: float,
) -> SiteHours:
    """Return everyone's CPU- and GPU-hours until `now`. Raises ApiError. `runs` are from the
    console's cache; `users` and `groups` have the user and the group of each namespace.
    """
    found: dict[str, HoursByDay] = {}
    counted: set[str] = set()
    missed: list[Missed] = []
    where = path("configmaps", labels.OPERATOR[0])
    for each in api.every(where, labelSelector=hour_ledgers.LEDGER_SELECTOR).items:
        try:
            namespace, user, kept = hour_ledgers.read_ledger(each)
        except (msgspec.MsgspecError, KeyError) as error:
            text = _("{name} cannot be read: {why}")
            name = each["metadata"]["name"]
            missed.append(Missed(owner="", detail=text.format(name=name, why=error)))
            continue
        owner = users.get(namespace) or (
            user if user != namespace else kubernetes_runs.owner_of({}, namespace)
        )
        found[owner] = ledger.merge_days(found.get(owner, {}), kept.days)
        counted.update(kept.counted)
    for each in runs:
        run, head = each["hours"], each["metadata"]
        if run is not None and head["uid"] not in counted:
            owner = kubernetes_runs.owner_of(users, head["namespace"])
            run = replace(run, group=groups.get(head["namespace"], ""))
            found[owner] = ledger.add_run(found.get(owner, {}), run, now)
    return SiteHours(users=found, missed=tuple(missed))


# -- storage: how full claims are, from the kubelets' volume statistics.
# The kubelet's summary is read through the API server. That needs the right `nodes/proxy`, which
# also permits commands in any pod. The console therefore does not have the right unless an
# administrator grants it. If a volume is a folder of a larger disk, as with some storage classes,
# the kubelet reports nothing or the size of the whole disk. Such a report is ignored. Ref:
# https://kubernetes.io/docs/reference/instrumentation/node-metrics/

_KUBELET_SECONDS = 10.0


def site_storage(api: Api, users: Mapping[str, str]) -> SiteStorage:
    """Return how full everyone's claims are; `users` has the user of each namespace. Raises
    ApiError.
    """
    missed: list[Missed] = []
    told: dict[tuple[str, str], Object] = {}
    unknown = _("not measured: no pod mounts it now, or its storage class reports no usage")
    try:
        for node in api.every(path("nodes")).items:
            told |= _of_node(api, node["metadata"]["name"], missed)
    except ApiError as error:
        if error.status != 403:
            raise
        unknown = _(
            "not measured: the console may not read the kubelets' statistics (see "
            "Storage in docs/how-to/admin.md)"
        )
    found: dict[str, tuple[FolderUsage, ...]] = {}
    for claim in api.every(path("persistentvolumeclaims")).items:
        head = claim["metadata"]
        if head["namespace"] in users and head["name"] in FOLDER_NAMES:
            owner = users[head["namespace"]]
            volume = _volume(claim, told.get((head["namespace"], head["name"])), unknown)
            found[owner] = (*found.get(owner, ()), volume)
    return SiteStorage(users=found, missed=tuple(missed))


def _volume(claim: Object, told: Object | None, unknown: str) -> FolderUsage:
    name = claim["metadata"]["name"]
    size = parse_amounts((claim.get("status") or {}).get("capacity")).get("storage")
    allowed = None if size is None else round(size)
    if allowed is None:
        return FolderUsage(name=name, note=_("not measured: it has no volume yet"))
    if told is None:
        return FolderUsage(name=name, allowed=allowed, note=unknown)
    if told["capacityBytes"] > allowed * OWN_VOLUME_FACTOR:
        note = _("not measured: its volume is a folder of a larger disk")
        return FolderUsage(name=name, allowed=allowed, note=note)
    return FolderUsage(
        name=name, allowed=allowed, used=allowed - min(told["availableBytes"], allowed)
    )


def _of_node(api: Api, node: str, missed: list[Missed]) -> dict[tuple[str, str], Object]:
    """Return the kubelet's statistics of a node's mounted volumes, by namespace and claim."""
    try:
        summary = api.get(
            f"{path('nodes', '', node)}/proxy/stats/summary", seconds=_KUBELET_SECONDS
        )
    except ApiError as error:
        if error.status == 403:
            raise
        text = _("the volumes of node {node}: {why}")
        missed.append(Missed(owner="", detail=text.format(node=node, why=error)))
        return {}
    found = {}
    for pod in summary.get("pods") or ():
        for volume in pod.get("volume") or ():
            claim = volume.get("pvcRef")
            if claim and {"capacityBytes", "availableBytes"} <= volume.keys():
                found[str(claim["namespace"]), str(claim["name"])] = volume
    return found


# -- site

FIRST_SECONDS = 10.0
"""Maximum seconds to wait until the caches have their first lists of objects."""
WITHIN_SECONDS = 60.0
"""Timeout of one operation on the API server, in seconds."""
OPTIONS_FRESH = 60.0
"""Seconds for which the address of Grafana is cached."""
AT_ONCE = 8
MOST_LINES = 1000
_LONGEST_LINE = 4000
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

T = TypeVar("T")
UserNames = Callable[[], Awaitable[Iterable[str]]]


class KubernetesSite:
    """The site of a Kubernetes cluster.

    Args:
        api: the connection to the API server.
        home: the hub's namespace.
        prefix: prefix of users' namespaces.
        names: returns the names of all hub users.
    """

    def __init__(self, api: Api, home: str, prefix: str, names: UserNames) -> None:
        self._api, self._prefix, self._names = api, prefix, names
        self._home = home
        self.policy: Callable[[], Awaitable[HubPolicy]] = NoSitePolicy().policy
        """Returns the site's policy, which says where notebooks run."""
        self.tenants = Informer(
            api,
            path("namespaces"),
            selector=f"{labels.TENANT}=true,{HUB}={home}",
            shape=kubernetes_runs.ONLY,
            trim=kubernetes_runs.trim_namespace,
        )
        self.clusters = Informer(
            api,
            path("tfclusters"),
            shape=kubernetes_runs.RUN,
            trim=kubernetes_runs.trim_run,
            group=_uid,
        )
        self.pods = Informer(
            api,
            path("pods"),
            selector=kubernetes_runs.OURS,
            shape=kubernetes_runs.POD,
            trim=kubernetes_runs.trim_pod,
        )
        self.schedules = Informer(
            api,
            path(kubernetes_schedules.RESOURCE),
            optional=True,  # the installed CRDs may be older and lack schedules
            trim=self._trim_schedule,
        )
        self.needed = (self.tenants, self.clusters, self.pods)
        self.all = (*self.needed, self.schedules)
        self._leaks = kubernetes_runs.LeakFinder(
            api, lambda uid: bool(self.clusters.of(uid)), self._owner
        )
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="console")
        self._options: Options | None = None
        self._options_expire = 0.0

    def start(self) -> None:
        """Start the watches."""
        for each in self.all:
            each.start()

    def close(self) -> None:
        """Stop the watches."""
        for each in self.all:
            each.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def alive(self) -> bool:
        """Whether all watch threads are running."""
        return all(each.alive for each in self.all)

    @property
    def synced(self) -> bool:
        """Whether every cache has its first list of objects, except the cache of schedules, whose
        kind the cluster may lack.
        """
        return all(each.synced.is_set() for each in self.needed)

    @property
    def problems(self) -> list[str]:
        """The reasons why the caches are not current."""
        problems = [each.problem for each in self.needed if each.problem is not None]
        if (error := self.schedules.problem) is not None and not error.gone:
            problems.append(error)
        return [self._told(each) for each in problems]

    # -- the interface of `Site` -------------------------------------------------------------------

    async def runs(self) -> SiteRuns:
        """See `Site.runs`."""
        try:
            await asyncio.to_thread(self._wait)
        except TFClusterError as error:
            return SiteRuns(missed=(Missed(owner="", detail=str(error)),))
        every = kubernetes_runs.run_rows(self.clusters.every(), self.pods.every(), self._users())
        plans = kubernetes_schedules.schedule_rows(
            self.schedules.every(), self._users(), time.time()
        )
        missed = (Missed(owner="", detail=text) for text in dict.fromkeys(self.problems))
        return SiteRuns(rows=every, schedules=plans, missed=tuple(missed))

    async def still(self, _seen: SiteRuns, /) -> SiteRuns:
        """See `Site.still`. The cache is always current, so return its runs."""
        return await self.runs()

    async def runs_of(self, owner: str, /) -> SiteRuns:
        """See `Site.runs_of`."""
        try:
            await asyncio.to_thread(self._wait)
        except TFClusterError as error:
            return SiteRuns(missed=(Missed(owner=owner, detail=str(error)),))
        mine = {name: user for name, user in self._users().items() if user == owner}
        runs = [run for run in self.clusters.every() if run["metadata"]["namespace"] in mine]
        missed = (Missed(owner=owner, detail=text) for text in dict.fromkeys(self.problems))
        return SiteRuns(rows=kubernetes_runs.run_rows(runs, (), mine), missed=tuple(missed))

    async def graphs(self, rows: Sequence[SiteRun], /) -> Mapping[str, str]:
        """See `Site.graphs`. The operator publishes the same address in every namespace, so the
        address of one namespace is read.
        """
        places = {user: namespace for namespace, user in self._users().items()}
        mine = [(row, places[row.owner]) for row in rows if row.owner in places]
        if mine and time.monotonic() > self._options_expire:
            self._options_expire = time.monotonic() + OPTIONS_FRESH
            with contextlib.suppress(TFClusterError):  # show the table even without links
                self._options = await self._asked(lambda: self._published(mine[0][1]))
        options, found = self._options, {}
        for row, namespace in mine:
            there = options.dashboard(namespace) if options else ""
            if link := graphs_link(there, row.name, row.created_at, row.finished_at):
                found[row.uid] = link
        return found

    async def stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        """See `Site.stop`."""
        await self._asked(lambda: self._stop(owner, name, uid, stop))

    async def pause(self, owner: str, name: str, uid: str, pause: Pause) -> None:
        """See `Site.pause`."""
        change = kubernetes_schedules.suspended(pause)
        await self._asked(lambda: self._suspend(owner, name, uid, change, refuse_to_pause))

    async def resume(self, owner: str, name: str, uid: str) -> None:
        """See `Site.resume`."""
        change = kubernetes_schedules.NOT_SUSPENDED
        await self._asked(lambda: self._suspend(owner, name, uid, change, refuse_to_resume))

    async def tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        """See `Site.tail`."""
        return await self._asked(lambda: self._tail(owner, name, task, lines))

    async def hours(self) -> SiteHours:
        """See `Site.hours`."""
        groups = {
            each["metadata"]["name"]: str(notes.get(labels.USER_GROUP, ""))
            for each in self.tenants.every()
            if (notes := each["metadata"].get("annotations"))
        }
        runs, users, now = self.clusters.every(), self._users(), time.time()
        return await self._asked(lambda: site_hours(self._api, runs, users, groups, now))

    async def storage(self) -> SiteStorage:
        """See `Site.storage`."""
        return await self._asked(lambda: site_storage(self._api, self._users()))

    async def pack(self, owner: str, out: int, tell: Callable[[str], None]) -> None:
        """See `Site.pack`; runs in a thread of its own, because it may take hours."""
        await asyncio.to_thread(self._wait)
        namespace, pool = self._namespace(owner), (await self.policy()).placement.notebooks
        try:
            await asyncio.to_thread(
                kubernetes_archive.pack_claims, self._api, self._home, namespace, pool, out, tell
            )
        except ApiError as error:
            raise access.explain_api_error(error, server=self._api.server) from None

    def why_no_notebook(self, name: str, *, run: bool = True) -> str:  # noqa: ARG002
        """Return an empty text: tenancy makes a namespace for every user."""
        return ""

    async def leaks(self) -> SiteLeaks:
        """See `Site.leaks`."""
        missed: list[Missed] = []
        found: list[Leak] = []
        try:
            found += await self._asked(lambda: list(self._leaks.objects()))
        except TFClusterError as error:
            missed.append(Missed(owner="", detail=str(error)))
        try:
            users = set(await self._names())
        except TFClusterError as error:
            missed.append(Missed(owner="", detail=str(error)))
        else:
            found += self._leaks.namespaces(self.tenants.every(), users)
        return SiteLeaks(items=tuple(found), missed=tuple(missed))

    async def remove(self, owner: str, leak: str) -> None:
        """See `Site.remove`."""
        kind, _colon, name = leak.partition(":")
        if kind != kubernetes_runs.NAMESPACE:
            await self._asked(lambda: self._leaks.remove(self._namespace(owner), leak))
            return
        found = self.tenants.get("", name)
        if found is None or not kubernetes_runs.is_left(found) or self._owner(name) != owner:
            raise kubernetes_runs.no_such_leak()
        if owner in set(await self._names()):
            raise Conflict(_("{name} is a user of the hub again").format(name=owner))
        await self._asked(lambda: self._leaks.mark(found))

    # -- in threads --------------------------------------------------------------------------------

    async def _asked(self, do: Callable[[], T]) -> T:
        """Return the result of `do`, run in a thread; raises only TFClusterErrors."""

        def ask() -> T:
            self._wait()
            return do()

        loop = asyncio.get_running_loop()
        try:
            return await asyncio.wait_for(loop.run_in_executor(self._threads, ask), WITHIN_SECONDS)
        except ApiError as error:
            raise access.explain_api_error(error, server=self._api.server) from None
        except asyncio.TimeoutError:
            text = _("the API server {server} does not answer within {seconds:g} s")
            words = {"server": self._api.server, "seconds": WITHIN_SECONDS}
            raise BackendUnavailable(text.format(**words)) from None

    def _published(self, namespace: str) -> Options | None:
        """Return the launch options that the operator published in a namespace.

        If they cannot be read, return the options that the last successful reading found, in
        any namespace; None if there was no such reading.
        """
        where = path("configmaps", namespace)
        for found in self._api.every(where, fieldSelector=f"metadata.name={labels.OPTIONS}").items:
            with contextlib.suppress(KeyError, msgspec.MsgspecError):
                return conversion.decode(found["data"][OPTIONS_KEY], Options)
        return self._options

    def _stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        namespace = self._namespace(owner)
        found = self._meant(namespace, name, uid)
        row = found["row"]
        kubernetes_runs.refuse_to_stop(row.name, found)
        wish: dict[str, Any] = {
            "metadata": {"uid": row.uid},  # not another run of the same name
            "spec": custom_resource.write_stop(replace(stop, at=stop.at or time.time())),
        }
        where = path("tfclusters", namespace, row.name)
        try:
            kubernetes_runs.refuse_to_stop(
                row.name, {**kubernetes_runs.trim_run(self._api.merge(where, wish)), "stop": None}
            )
        except ApiError as error:
            if error.status not in (404, 409, 422):
                raise
            kubernetes_runs.refuse_to_stop(
                row.name, self._meant(namespace, row.name, row.uid, fresh=True)
            )
            raise

    def _tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        namespace = self._namespace(owner)
        row = self._meant(namespace, name, "")["row"]
        whole = find_object(self._api, path("tfclusters", namespace, row.name))
        if whole is None:
            raise _unknown(row.name)
        cluster = custom_resource.read(whole)
        lines = min(max(lines, 1), MOST_LINES)
        reader = RunLogs(self._api, cluster, run_names.tasks_of(cluster, [task]), None)
        try:
            texts = [line.text for line in reader.once(lines) if line is not None]
        except NotFound:
            if not (kept := kubernetes_runs.last_lines(cluster, task)):
                raise
            texts = [_("Its pods are gone. The record keeps its last lines:"), *kept]
        return [text[:_LONGEST_LINE] for text in texts[-lines:]]

    def _suspend(
        self,
        owner: str,
        name: str,
        uid: str,
        change: Object,
        check: Callable[[str, Pause | None], None],
    ) -> None:
        """Suspend or resume a schedule by the patch `change`, unless `check` raises an error or the
        schedule changes meanwhile.
        """
        namespace = self._namespace(owner)
        if not names.is_valid(name):  # an invalid name could lead to another API path
            raise _unknown_schedule(name)
        where = path(kubernetes_schedules.RESOURCE, namespace, name)
        found = find_object(self._api, where)
        if found is None:
            raise _unknown_schedule(name)
        head = found["metadata"]
        if uid and uid != head["uid"]:
            text = _("nothing was done, because {name} was deleted and created again meanwhile")
            raise Conflict(text.format(name=name))
        check(name, kubernetes_schedules.pause_of(found))
        kept = {key: head[key] for key in ("uid", "resourceVersion")}
        try:
            self._api.merge(where, {"metadata": kept, **change})
        except ApiError as error:
            if error.gone:
                raise _unknown_schedule(name) from None
            if error.status == 409:
                raise Conflict(_("{name} has just changed: try again").format(name=name)) from None
            raise

    def _trim_schedule(self, found: Object) -> Object:
        head = found["metadata"]
        known = self.schedules.get(head["namespace"], head["name"])
        return kubernetes_schedules.trim_schedule(found, known, time.time())

    def _meant(self, namespace: str, name: str, uid: str, fresh: bool = False) -> Object:
        """Return the run with this name, as `trim_run` trims it. If `fresh` is true, read it from
        the API server, not from the cache. Raises NotFound, Conflict if the run does not have
        `uid`, or ApiError.
        """
        found = None if fresh else self.clusters.get(namespace, name)
        if found is None:  # launched a moment ago, or deleted
            # An invalid name could lead to another API path.
            possible = re.fullmatch(labels.RUN_PATTERN, name)
            told = find_object(self._api, path("tfclusters", namespace, name)) if possible else None
            if told is None:
                raise _unknown(name)
            found = kubernetes_runs.trim_run(told)
        if uid and uid != found["row"].uid:
            text = _("nothing was done, because {name} is another run now")
            raise Conflict(text.format(name=name))
        return found

    # -- owners ------------------------------------------------------------------------------------

    def _users(self) -> dict[str, str]:
        every = self.tenants.every()
        found = (
            (each["metadata"]["name"], kubernetes_runs.user_of(each, self._prefix))
            for each in every
        )
        return {name: user for name, user in found if user}

    def _owner(self, namespace: str) -> str:
        found = self.tenants.get("", namespace)
        user = kubernetes_runs.user_of(found, self._prefix) if found else ""
        return kubernetes_runs.owner_of({namespace: user}, namespace)

    def _namespace(self, owner: str) -> str:
        """Return the namespace of an owner. Raises NotFound."""
        mine = [name for name, user in self._users().items() if user == owner]
        if not mine and re.fullmatch(kubernetes_runs.OTHERS + _LABEL, owner):
            other = owner.removeprefix(kubernetes_runs.OTHERS)
            mine = [] if self._owner(other) != owner else [other]
        if len(mine) != 1:
            raise NotFound(_("there is no user {owner} with runs here").format(owner=owner))
        return mine[0]

    def _wait(self) -> None:
        """Wait until the caches have their first lists: without them, objects cannot be attributed
        to users.

        Raises:
            BackendUnavailable: the lists take too long, or the API server refuses.
        """
        deadline = time.monotonic() + FIRST_SECONDS
        for each in self.needed:
            while not each.synced.wait(0.05):
                if each.problem is not None or time.monotonic() > deadline:
                    why = self.problems or [_("the API server has not sent its first lists yet")]
                    raise BackendUnavailable(why[0])

    def _told(self, problem: ApiError) -> str:
        return str(access.explain_api_error(problem, server=self._api.server))


def _unknown(name: str) -> NotFound:
    return NotFound(_("there is no run {name} any more").format(name=name))


def _unknown_schedule(name: str) -> NotFound:
    return NotFound(_("there is no schedule {name} any more").format(name=name))


def _uid(found: Object) -> str:
    return str(found["metadata"]["uid"])
