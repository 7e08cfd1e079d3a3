"""The Kubernetes backend: clusters as pods of one namespace, created by the operator.

This backend needs only the rights of a user: to read and change TFClusters, and to read pods, their
logs and the options that the operator published. A launch is one POST. The backend stores nothing:
all answers come from the API server, and from /log if that is mounted. The operator makes all
decisions about runs.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from msgspec.structs import replace

from ... import state_files
from ...errors import BackendUnavailable, Conflict, InvalidRequest, Problem
from ...i18n import _
from ...kube import hour_ledgers as kube_hours
from ...kube.api import access, labels
from ...kube.api.client import Api, ApiError, Object, foreign_finalizers, path
from ...kube.api.decoding import POD_SHAPE
from ...kube.api.informer import CacheUpdate, Informer
from ...kube.objects import custom_resource
from ...kube.status import run_observer
from ...launch import LaunchRequest
from ...launch_checks import kubernetes as checks
from ...lifecycle.messages import with_first_reason
from ...quota.ledger import HoursAccount
from ...spec import Annotations, Spec, Stop, TFCluster, names
from .. import log_files, run_names
from ..base import (
    Backend,
    Counts,
    KubectlPlace,
    LogLine,
    Notifications,
    Options,
    Preflight,
    Removed,
    Schedules,
    SeenTask,
    check_output_removable,
    every_line,
    remove_output,
)
from ..run_names import is_record_expired
from . import namespace_access
from .log_following import RunLogs
from .namespace_access import OperatorStatus


def read_record(found: Object) -> TFCluster | None:
    """Return the record of the run that a TFCluster object describes; None if the object's name is
    invalid. If the object's spec is invalid, the record's message has the problems. Until the
    operator has seen the run, the message names the runs that this run waits for.
    """
    try:
        cluster = custom_resource.read(found)
        return replace(cluster, status=with_first_reason(cluster.spec, cluster.status))
    except InvalidRequest as error:
        if not custom_resource.split_name(str(found["metadata"]["name"]))[0]:
            return None
        cluster = custom_resource.read({**found, "spec": {"mode": "InGraph"}})
        return replace(cluster, status=replace(cluster.status, message=str(error)))


# -- launching -------------------------------------------------------------------------------------
# A launch is one POST, whose answer may be lost. An annotation identifies the launch, so that a run
# whose POST had no answer is recognized and not created twice. If the cluster's CRD lacks a field
# of the run, the API server refuses the launch instead of dropping the field.
# Ref: https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation

LAUNCH_ANNOTATION = f"{labels.GROUP}/launch"
"""Annotation with a random id of the launch that created a run."""
ANNOTATE_TRIES = 10
"""Maximum attempts to write annotations while others change the same run."""
RETRY_PAUSES = (0.5, 1.0, 2.0)
"""Seconds to wait before each repetition of a POST that had no answer and created nothing."""
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')


def post_run(api: Api, namespace: str, run: Object) -> Object | None:
    """Create a run and return it; return None if another run has its name.

    Raises:
        ApiError: the API server refused the run, or it did not answer and created nothing.
        BackendUnavailable: the API server did not answer, and it is unknown whether it created the
            run.
        InvalidRequest: the CRD in the cluster lacks a field of the run.
    """
    head = run["metadata"]
    mark = uuid.uuid4().hex
    marked = {**(head.get("annotations") or {}), LAUNCH_ANNOTATION: mark}
    body = {**run, "metadata": {**head, "annotations": marked}}
    for pause in (*RETRY_PAUSES, None):
        try:
            return api.create(path("tfclusters", namespace), body, fieldValidation="Strict")
        except ApiError as error:
            if fields := _UNKNOWN_FIELD.findall(error.message) if error.status == 400 else []:
                raise InvalidRequest([_unknown_field(field) for field in fields]) from None
            if error.reason != "AlreadyExists" and not error.unanswered:
                raise
            refused = error
        found = _find_posted(api, namespace, str(head["name"]), refused)
        if found is not None:
            marks = found["metadata"].get("annotations") or {}
            return found if marks.get(LAUNCH_ANNOTATION) == mark else None
        if not refused.unanswered:
            return None  # the run was deleted in the meantime
        if pause is None:
            raise refused
        time.sleep(pause)
    raise AssertionError


def _find_posted(api: Api, namespace: str, name: str, refused: ApiError) -> Object | None:
    try:
        return api.get(path("tfclusters", namespace, name))
    except ApiError as error:
        if error.gone:
            return None
        why = access.explain_api_error(refused, server=api.server)
        raise BackendUnavailable(
            _(
                "{why}. {name} may have been launched: check with `tfcluster list` before you "
                "try again"
            ).format(why=why, name=name)
        ) from None


def _unknown_field(field: str) -> Problem:
    allowed = _(
        "TFCluster on this cluster is older than this package and does not know this field: "
        "leave it out, or have the administrator apply the newer version"
    )
    return Problem(field, None, allowed)


# -- watching --------------------------------------------------------------------------------------
# One list request and one watch request observe all runs. No change is lost when the watch breaks
# or its resourceVersion is too old, and a run that was deleted in the meantime is reported as
# removed. A watch of one run waits for a server that does not answer, because the run continues; a
# watch of all runs reports the outage soon.

WATCH_INTERVAL = 0.4
OUTAGE_PATIENCE = 600.0
"""Seconds that a watch of one run waits for a server that does not answer."""
REFUSAL_PATIENCE = 10.0
"""Seconds that a watch of one run waits for a server that refuses requests, as servers do for some
seconds after a restart.
"""
REPORT_OUTAGE_AFTER = 3.0
"""Seconds for which the server must have been silent before a watch of all runs reports that it
does not answer.
"""

ReadRecord = Callable[[Object], TFCluster | None]


def watch_run(
    api: Api, namespace: str, cluster: TFCluster, read: ReadRecord
) -> Iterator[TFCluster | None]:
    """Yield the run now and at each change until its resources are released; yield `None` in
    between.
    """
    head = cluster.metadata
    last: TFCluster | None = None
    for update in _updates(
        api, namespace, head.name, lambda away: OUTAGE_PATIENCE if away else REFUSAL_PATIENCE
    ):
        if update is None:
            if last is None:
                return  # the run was deleted in the meantime
            yield None
            continue
        now = None if update.new is None else read(update.new)
        if now is None or now.metadata.uid != head.uid:
            return  # the run was deleted, and its name perhaps used again
        if now != last:
            last = now
            yield now
        if now.status.released_at is not None:
            return


def watch_all_runs(
    api: Api, namespace: str, read: ReadRecord
) -> Iterator[TFCluster | Removed | None]:
    """Yield each run now, at each change, and when it is deleted; yield `None` in between. Never
    ends.
    """
    told: dict[str, TFCluster] = {}
    for update in _updates(api, namespace, "", lambda _away: REPORT_OUTAGE_AFTER):
        if update is None:
            yield None
            continue
        name = str(update.object["metadata"]["name"])
        now, before = read(update.new) if update.new else None, told.get(name)
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            del told[name]
            yield Removed(name)
        if now is not None and now != before and not is_record_expired(now, time.time()):
            told[name] = now
            yield now


def _updates(
    api: Api, namespace: str, name: str, patience: Callable[[bool], float]
) -> Iterator[CacheUpdate | None]:
    """Yield the updates of an informer; yield `None` when no update is available.

    Raises:
        TFClusterError: the server did not answer, or refused requests, for too long. The function
        `patience` returns how many seconds are allowed: `patience(True)` if the server does not
        answer, `patience(False)` if it refuses.
    """
    updates: queue.SimpleQueue[CacheUpdate] = queue.SimpleQueue()
    informer = Informer(
        api,
        path("tfclusters", namespace),
        fields=f"metadata.name={name}" if name else "",
        changed=updates.put,
    )
    informer.start()
    away: bool | None = (
        None  # the server: None if it answers, True if it is down, False if it refuses
    )
    since = 0.0
    try:
        while True:
            try:
                yield updates.get(timeout=WATCH_INTERVAL)
                continue
            except queue.Empty:
                problem = informer.problem
            known = informer.synced.is_set()
            if (kind := None if problem is None else problem.unanswered) != away:
                away, since = kind, time.monotonic()
            if problem is not None:
                waited = time.monotonic() - since
                if not known or waited > patience(problem.unanswered):
                    raise access.explain_api_error(problem, name, server=api.server)
            if known and updates.empty():
                yield None
    finally:
        informer.stop()


# -- the backend -----------------------------------------------------------------------------------

_NAME_TRIES = 20
ROOM_PATIENCE = 5.0
"""Maximum seconds that a launch waits for the operator to delete old records."""
NOTE_PATIENCE = 10.0
"""Maximum seconds that a deletion waits for the run's number to be published; publishing takes at
most six seconds.
"""
# Hide the log of the informers' retries in shells and notebooks: the commands report what matters.
logging.getLogger("tfcluster_magic").addHandler(logging.NullHandler())
Clusters = list[TFCluster]


class KubernetesBackend(Backend):
    """Clusters in a namespace of a Kubernetes cluster.

    Args:
        context: a context of the kubeconfig. If it is empty, a pod uses its service account, and
            any other process the current context.
        namespace: the namespace of the runs; if it is empty, `access.connect` chooses one.
    """

    name = "kubernetes"

    def __init__(self, context: str = "", namespace: str = "") -> None:
        self._context, self._namespace = context, namespace

    @cached_property
    def _connection(self) -> tuple[Api, str]:
        return access.connect(self._context, self._namespace)

    @property
    def api(self) -> Api:
        """The connection to the API server, created when first used. Raises BackendUnavailable."""
        return self._connection[0]

    @property
    def namespace(self) -> str:
        """The namespace of the runs. Raises BackendUnavailable."""
        return self._connection[1]

    @property
    def mounts(self) -> bool:
        """Whether this process mounts the volumes of the runs' namespace. Sends no request."""
        return namespace_access.mounts_volumes(self._context, self.namespace)

    def workspace(self) -> Path:
        """See `Backend.workspace`."""
        return namespace_access.workspace_folder(self.mounts)

    def unseen(self, folder: str) -> str | None:
        """See `Backend.unseen`."""
        return namespace_access.why_not_mounted(self.mounts, folder)

    def why_it_lingers(self, cluster: TFCluster) -> str:
        """See `Backend.why_it_lingers`."""
        return self.outage() or _(
            "its pods have not ended yet: "
            "`kubectl get pods -n {namespace} -l {label}={name}` shows them"
        ).format(namespace=cluster.metadata.owner, label=labels.NAME, name=cluster.metadata.name)

    def outage(self) -> str:
        """Return the notice about the operator; see `Backend.outage`."""
        return self._operator.notice()

    @cached_property
    def _operator(self) -> OperatorStatus:
        return OperatorStatus(
            self.api, lambda: namespace_access.operator_lease(self.api, self.namespace)
        )

    def out_of_reach(self, cluster: TFCluster) -> str | None:
        """See `Backend.out_of_reach`."""
        if access.in_pod() and access.pod_namespace() == cluster.metadata.owner:
            return None
        return _(
            "the servers of {name} have addresses inside the cluster ({address}), and only pods of "
            "namespace {namespace} reach them: connect in a notebook there"
        ).format(
            name=cluster.metadata.name,
            address=cluster.status.addresses.get("worker", ("-",))[0],
            namespace=cluster.metadata.owner,
        )

    def options(self) -> Options:
        """See `Backend.options`.

        Raises:
            BackendUnavailable: the operator does not serve this namespace.
        """
        with self._explained():
            return namespace_access.read_published(self.api, self.namespace)[0]

    def graphs_url(self) -> str:
        """See `Backend.graphs_url`."""
        return self.options().dashboard(self.namespace)

    def serves(self) -> bool:
        """Return whether an operator serves the namespace; True if this is unknown now.

        Raises:
            NotAllowed: TFCluster is installed, and this account has no right to find out whether an
                operator serves the namespace.
            BackendUnavailable: TFCluster is installed, and the API server does not accept this
                account.
        """
        try:
            api, namespace = self._connection
        except BackendUnavailable:
            return False
        return namespace_access.is_served(api, namespace)

    def preflight(self, spec: Spec) -> Preflight:
        """See `Backend.preflight`."""
        facts = self._facts(spec)
        return checks.preflight(checks.with_image(spec, facts), facts)

    def kubectl_place(self, spec: Spec) -> KubectlPlace:
        """See `Backend.kubectl_place`. Raises the same errors as the method `options`."""
        facts = self._facts(spec)
        missing = [str(problem) for problem in checks.preflight(spec, facts).problems]
        with self._explained():
            forbidden = namespace_access.not_creatable(self.api, self.namespace)
        if forbidden:
            text = _(
                "your account may not create {kinds} in namespace {namespace}: ask its "
                "administrator to apply the manifests, or apply a TFCluster (--layout tfcluster)"
            )
            told = text.format(kinds=", ".join(forbidden), namespace=self.namespace)
            missing.append(told)
        return KubectlPlace(self.namespace, facts.cluster.policy, tuple(missing))

    def _facts(self, spec: Spec) -> checks.ClientFacts:
        """Return the facts for the checks of a launch. Raises the same errors as the method
        `options`.
        """
        with self._explained():
            there, offer, told = namespace_access.read_published(self.api, self.namespace)
            account = self._account(told)
        numbers = kube_hours.last_numbers(told) or {}
        return namespace_access.gather_facts(spec, there, offer, account, numbers, here=self.mounts)

    def hours(self) -> HoursAccount:
        """See `Backend.hours`."""
        with self._explained():
            told = namespace_access.read_published(self.api, self.namespace)[2]
            return kube_hours.read_account(told, self._all_runs(), time.time())

    def bounded(self) -> HoursAccount | None:
        """See `Backend.bounded`."""
        with self._explained():
            return self._account(namespace_access.read_published(self.api, self.namespace)[2])

    def _account(self, told: str) -> HoursAccount | None:
        bounded = kube_hours.has_budget(told)
        return kube_hours.read_account(told, self._all_runs(), time.time()) if bounded else None

    def schedules(self) -> Schedules:
        """See `Backend.schedules`."""
        from .schedule_store import KubernetesSchedules  # slow to import, and seldom needed

        return KubernetesSchedules(
            self.api, self.namespace, lambda spec: checks.with_image(spec, self._facts(spec))
        )

    def notifications(self) -> Notifications:
        """See `Backend.notifications`."""
        from .notification_store import KubernetesNotifications

        return KubernetesNotifications(self.api, self.namespace)

    def next_number(self, cluster: str) -> int:
        """See `Backend.next_number`. Raises the same errors as the method `options`."""
        with self._explained():
            there, _offer, told = namespace_access.read_published(self.api, self.namespace)
            return namespace_access.next_run_number(
                self.mounts,
                cluster,
                self._all_runs(),
                there.log_dir,
                kube_hours.last_numbers(told) or {},
            )

    def create(self, request: LaunchRequest) -> TFCluster:
        """See `Backend.create`."""
        facts = self._facts(request.spec)
        spec = checks.with_image(request.spec, facts)
        verdict = checks.preflight(spec, facts)
        verdict.check()
        warnings = (*request.warnings, *verdict.warnings)
        kept = [text for text in warnings if text not in verdict.passing]
        with self._explained():
            for _try in range(_NAME_TRIES):
                known = self._all_runs()
                running = {c.metadata.cluster: c for c in known if c.active}
                cluster, renamed = run_names.choose_name(
                    request.cluster, request.name_given, running
                )
                number = namespace_access.next_run_number(
                    self.mounts, cluster, known, facts.options.log_dir, facts.numbers
                )
                body = custom_resource.write(
                    cluster,
                    number,
                    spec,
                    warnings=kept,
                    inferred=(*renamed, *request.inferred),
                    scheduled=request.scheduled,
                )
                made = self._post(body)
                if made is None:
                    continue  # another launch was faster, so the name may be taken now
                read = custom_resource.read(made)
                told = (*read.status.warnings, *verdict.passing)
                status = with_first_reason(read.spec, replace(read.status, warnings=told))
                return replace(read, status=status)
        raise Conflict(
            _("other launches of {name} are in progress: try again").format(name=request.cluster)
        )

    def _post(self, body: Object) -> Object | None:
        """Post a run as `post_run` does. If the namespace has too many records, wait up to
        `ROOM_PATIENCE` seconds for the operator to delete the record of an ended run.

        Raises:
            PreflightRefused: the namespace has the maximum number of records.
        """
        until = time.monotonic() + ROOM_PATIENCE
        while True:
            try:
                return post_run(self.api, self.namespace, body)
            except ApiError as error:
                limit = namespace_access.exceeded_record_limit(error)
                if limit is None:
                    raise
            known = self._all_runs()
            ended = any(each.status.released_at is not None for each in known)
            if not ended or time.monotonic() >= until:
                raise namespace_access.too_many_records(known, limit)
            time.sleep(WATCH_INTERVAL)

    def list(self) -> list[TFCluster]:
        """See `Backend.list`."""
        now = time.time()
        with self._explained():
            return run_names.newest_first(
                [c for c in self._all_runs() if not run_names.is_record_expired(c, now)]
            )

    def get(self, ref: str) -> TFCluster:
        """See `Backend.get`."""
        cluster, run = names.parse_ref(ref)
        with self._explained():
            if not names.is_valid(cluster):
                raise run_names.unknown_run_error(ref, self._names(), self._all_runs)
            if run is None:
                runs = [c for c in self._all_runs() if c.metadata.cluster == cluster]
                if runs:
                    return max(runs, key=lambda c: c.metadata.run)
                raise run_names.unknown_run_error(ref, self._names(), self._all_runs)
            try:
                found = read_record(self.api.get(self._where(names.run_name(cluster, run))))
            except ApiError as error:
                if not (error.gone and error.details.get("name")):
                    raise
                found = None
            if found is None:
                raise run_names.unknown_run_error(ref, self._names())
            return found

    def stop(self, ref: str, stop: Stop) -> TFCluster:
        """See `Backend.stop`."""
        cluster = self.get(ref)
        if cluster.status.released_at is not None or cluster.spec.stop is not None:
            return cluster
        stop = replace(stop, at=stop.at or time.time())
        wish = {
            # so that a later run of that name is not stopped
            "metadata": {"uid": cluster.metadata.uid},
            "spec": custom_resource.write_stop(stop),
        }
        with self._explained(cluster.metadata.name):
            try:
                return custom_resource.read(
                    self.api.merge(self._where(cluster.metadata.name), wish)
                )
            except ApiError as error:
                now = self.get(cluster.metadata.name)
                if error.status == 422 and now.spec.stop is not None:
                    return now  # another stop was faster, and only the first one counts
                raise

    def annotate(self, ref: str, change: Callable[[Annotations], Annotations]) -> TFCluster:
        """See `Backend.annotate`."""
        head = self.get(ref).metadata
        where = self._where(head.name)
        with self._explained(head.name):
            for tries_left in reversed(range(ANNOTATE_TRIES)):
                found = self.api.get(where)
                told = found["metadata"]
                before = custom_resource.read_annotations(told)
                marks = custom_resource.write_annotations(before, change(before))
                same = {"uid": head.uid, "resourceVersion": told["resourceVersion"]}
                try:
                    changed = self.api.merge(where, {"metadata": {**same, "annotations": marks}})
                    break
                except ApiError as error:  # 409: the run has changed meanwhile
                    if error.status != 409 or told["uid"] != head.uid or not tries_left:
                        raise
        read = read_record(changed)
        assert read is not None
        return read

    def check_delete(self, cluster: TFCluster, with_logs: bool) -> None:
        """See `Backend.check_delete`."""
        if not with_logs:
            return
        output = namespace_access.output_folder(self.mounts, cluster)
        if output is None:
            raise Conflict(
                _(
                    "the output of {name} is in {folder} on a volume that is not mounted here: "
                    "delete it in a notebook of the cluster, or delete only the record"
                ).format(
                    name=cluster.metadata.name, folder=cluster.status.paths.get("output", "/log")
                )
            )
        check_output_removable(cluster, output)

    def delete(self, ref: str, with_logs: bool = False) -> None:
        """See `Backend.delete`."""
        cluster = self.get(ref)
        head, output = cluster.metadata, namespace_access.output_folder(self.mounts, cluster)
        if cluster.status.released_at is None:
            raise run_names.still_has_tasks(cluster)
        self.check_delete(cluster, with_logs)
        if with_logs and output is not None:
            remove_output(cluster, output)
            state_files.remove_empty(output)
        self._wait_until_noted(cluster)
        with self._explained(head.name):
            left = self.api.delete(self._where(head.name), uid=head.uid)
        if left.get("metadata") and (names := foreign_finalizers(left)):
            raise Conflict(
                _(
                    "{name} has ended and uses nothing, but the finalizer {finalizers} keeps its "
                    "record. The owner of the finalizer must remove it, for example with "
                    "`kubectl -n {namespace} patch tfcluster {name} --type=merge "
                    '-p \'{{"metadata":{{"finalizers":null}}}}\'`'
                ).format(name=head.name, finalizers=", ".join(names), namespace=self.namespace)
            )

    def _wait_until_noted(self, cluster: TFCluster) -> None:
        """Wait until the operator has published the number of a run that ended just now.

        Otherwise a launch right after the run's deletion would get the same number. The wait takes
        at most `NOTE_PATIENCE` seconds.
        """
        head, until = cluster.metadata, time.monotonic() + NOTE_PATIENCE
        while time.monotonic() < until and not self.outage():
            try:
                told = namespace_access.read_published(self.api, self.namespace)[2]
            except (ApiError, BackendUnavailable):
                return  # no operator publishes numbers here, so delete at once
            numbers = kube_hours.last_numbers(told)
            if numbers is None or numbers.get(head.cluster, 0) >= head.run:
                return
            time.sleep(WATCH_INTERVAL)

    def logs(
        self,
        ref: str,
        tasks: Sequence[str] = (),
        follow: bool = False,
        tail: int | None = None,
        counts: Counts = every_line,
    ) -> Iterator[LogLine | None]:
        """See `Backend.logs`."""
        cluster = self.get(ref)
        wanted = run_names.tasks_of(cluster, tasks)
        output = namespace_access.output_folder(self.mounts, cluster)
        reader = RunLogs(self.api, cluster, wanted, output, counts)
        return self._with_explained_errors(reader.follow(tail) if follow else reader.once(tail))

    def _with_explained_errors(self, lines: Iterator[LogLine | None]) -> Iterator[LogLine | None]:
        with self._explained():
            yield from lines

    def observe_tasks(self, cluster: TFCluster, counts: Counts = every_line) -> Sequence[SeenTask]:
        """See `Backend.observe_tasks`."""
        head, tasks = cluster.metadata, run_names.tasks_of(cluster, ())
        query = labels.label_query(labels.run_selector(head.name, head.uid))
        with self._explained():
            where = path("pods", head.owner)
            pods = self.api.every(where, shape=POD_SHAPE, labelSelector=query).items
        pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        newest = {labels.task_of(pod): pod for pod in pods}
        output = namespace_access.output_folder(self.mounts, cluster)
        copies = {} if output is None else {task: (output / f"{task}.log",) for task in tasks}
        lines = log_files.last_lines(copies, counts)
        seen = []
        for task in tasks:
            node, state, since = "", None, None
            if (pod := newest.get(task)) is not None:
                node = str(pod["spec"].get("nodeName") or "")
                state, since = run_observer.task_in_pod(pod, time.time())
            seen.append(SeenTask(task, node, state, since, lines.get(task)))
        return seen

    @overload
    def watch(self, ref: str) -> Iterator[TFCluster | None]: ...

    @overload
    def watch(self, ref: None = None) -> Iterator[TFCluster | Removed | None]: ...

    def watch(self, ref: str | None = None) -> Iterator[TFCluster | Removed | None]:
        """See `Backend.watch`."""
        if ref is None:
            return watch_all_runs(self.api, self.namespace, read_record)
        return watch_run(self.api, self.namespace, self.get(ref), read_record)

    # -- helpers of the methods --------------------------------------------------------------------

    def _where(self, name: str) -> str:
        return path("tfclusters", self.namespace, name)

    def _all_runs(self) -> Clusters:
        """Return all runs, in no particular order. Raises ApiError."""
        where = path("tfclusters", self.namespace)
        try:
            found = self.api.every(where).items
        except ApiError as error:
            if error.status != 410:
                raise
            # the API server no longer had the next page: start again
            found = self.api.every(where).items
        return [cluster for each in found if (cluster := read_record(each)) is not None]

    def _names(self) -> Sequence[tuple[str, int]]:
        runs = run_names.newest_first(self._all_runs())
        return [(c.metadata.cluster, c.metadata.run) for c in runs]

    @contextlib.contextmanager
    def _explained(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            raise access.explain_api_error(error, what, server=self.api.server) from None
