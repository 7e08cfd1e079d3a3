"""The Kubernetes backend: clusters as pods of one namespace, which the operator makes.

Promises what `Backend` says, with no more rights than a user has: TFClusters, and reading pods,
their logs and the operator's options. A launch is one POST. Keeps nothing: all answers come from
the API server, and from /log where that is mounted here. Decides nothing about a run: the operator
does.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

import msgspec
from msgspec.structs import replace

from ...errors import BackendUnavailable, Conflict, PreflightRefused
from ...i18n import _
from ...kube.api import access, account, labels
from ...kube.api.client import Api, ApiError, path
from ...kube.api.gone import keepers
from ...kube.capacity import ledgers as kube_hours
from ...kube.objects import custom_resource
from ...launch import LaunchRequest
from ...quota.ledger import Account
from ...spec import Spec, Stop, TFCluster, names
from .. import run_names
from ..base import Backend, Counts, LogLine, Options, Preflight, Removed, every_line
from . import folders, launch_check, posting, published, records, watching
from .attendance import Attendance
from .logs import Reader

_TRIES = 20
# Informers log what they try again; in a shell or a notebook the verbs say what matters of it.
logging.getLogger("tfcluster_magic").addHandler(logging.NullHandler())
Clusters = list[TFCluster]


class KubernetesBackend(Backend):
    """Clusters in a namespace of a Kubernetes cluster.

    Args:
        context: of the kubeconfig; empty: in a pod its service account, else the current context.
        namespace: empty: see `access.connect`.
    """

    name = "kubernetes"

    def __init__(self, context: str = "", namespace: str = "") -> None:
        self._context, self._namespace = context, namespace

    @cached_property
    def _connection(self) -> tuple[Api, str]:
        return access.connect(self._context, self._namespace)

    @property
    def api(self) -> Api:
        """The connection, made when first needed. Raises BackendUnavailable."""
        return self._connection[0]

    @property
    def namespace(self) -> str:
        """Where the runs are. Raises BackendUnavailable."""
        return self._connection[1]

    @property
    def mounts(self) -> bool:
        """Whether this process has the volumes of the runs' namespace. Asks no cluster."""
        return folders.is_here(self._context, self.namespace)

    def workspace(self) -> Path:
        """See `Backend.workspace`."""
        return folders.workspace(self.mounts)

    def unseen(self, folder: str) -> str | None:
        """See `Backend.unseen`."""
        return folders.unseen(self.mounts, folder)

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
    def _operator(self) -> Attendance:
        return Attendance(self.api, lambda: published.lease(self.api, self.namespace))

    def out_of_reach(self, cluster: TFCluster) -> str | None:
        """See `Backend.out_of_reach`."""
        if account.in_pod() and account.namespace() == cluster.metadata.owner:
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
            return published.read(self.api, self.namespace)[0]

    def serves(self) -> bool:
        """Whether an operator serves the namespace; also when nobody can say at the moment.

        Raises:
            NotAllowed: TFCluster is installed, and this account may not ask.
            BackendUnavailable: the same, and the account is not accepted at all.
        """
        try:
            api, namespace = self._connection
        except BackendUnavailable:
            return False
        return published.is_there(api, namespace)

    def preflight(self, spec: Spec) -> Preflight:
        """See `Backend.preflight`."""
        return self._check(spec)[2]

    def _check(self, spec: Spec) -> tuple[Spec, Options, Preflight]:
        """The spec as it would be launched, what there is, and what stands against it."""
        with self._explained():
            there, offer, told = published.read(self.api, self.namespace)
            account = self._account(told) or Account()
        spec = launch_check.with_image(spec, offer)
        return spec, there, launch_check.check(spec, there, offer, account, here=self.mounts)

    def hours(self) -> Account:
        """See `Backend.hours`."""
        with self._explained():
            told = published.read(self.api, self.namespace)[2]
            return kube_hours.account(told, self._all_runs(), time.time())

    def bounded(self) -> Account | None:
        """See `Backend.bounded`."""
        with self._explained():
            return self._account(published.read(self.api, self.namespace)[2])

    def _account(self, told: str) -> Account | None:
        bounded = kube_hours.bounds(told)
        return kube_hours.account(told, self._all_runs(), time.time()) if bounded else None

    def create(self, request: LaunchRequest) -> TFCluster:
        """See `Backend.create`."""
        spec, there, verdict = self._check(request.spec)
        if verdict.problems:
            raise PreflightRefused(verdict.problems)
        warnings = (*request.warnings, *verdict.warnings)
        with self._explained():
            for _try in range(_TRIES):
                known = self._all_runs()
                running = {c.metadata.cluster: c for c in known if c.active}
                cluster = run_names.choose(request.cluster, request.name_given, running)
                number = folders.next_run(self.mounts, cluster, known, there.log_dir)
                body = custom_resource.write(cluster, number, spec, warnings=warnings)
                made = posting.post(self.api, self.namespace, body)
                if made is None:
                    continue  # somebody was faster: the name may be taken now
                return custom_resource.read(made)
        raise Conflict(
            _("other launches of {name} come at the same time: try again").format(
                name=request.cluster
            )
        )

    def list(self) -> list[TFCluster]:
        """See `Backend.list`."""
        now = time.time()
        with self._explained():
            return run_names.newest_first(
                [c for c in self._all_runs() if not run_names.expired(c, now)]
            )

    def get(self, ref: str) -> TFCluster:
        """See `Backend.get`."""
        cluster, run = names.parse_ref(ref)
        with self._explained():
            if not names.is_valid(cluster):
                raise run_names.unknown(ref, self._names())
            if run is None:
                runs = [c for c in self._all_runs() if c.metadata.cluster == cluster]
                if runs:
                    return max(runs, key=lambda c: c.metadata.run)
                raise run_names.unknown(ref, self._names())
            try:
                found = records.read(self.api.get(self._where(names.run_name(cluster, run))))
            except ApiError as error:
                if not (error.gone and error.details.get("name")):
                    raise
                found = None
            if found is None:
                raise run_names.unknown(ref, self._names())
            return found

    def stop(self, ref: str, stop: Stop) -> TFCluster:
        """See `Backend.stop`."""
        cluster = self.get(ref)
        if cluster.status.released_at is not None or cluster.spec.stop is not None:
            return cluster
        stop = replace(stop, at=stop.at or time.time())
        wish = {
            "metadata": {"uid": cluster.metadata.uid},  # not another run of that name
            "spec": {"stop": msgspec.to_builtins(stop)},
        }
        with self._explained(cluster.metadata.name):
            try:
                return custom_resource.read(
                    self.api.merge(self._where(cluster.metadata.name), wish)
                )
            except ApiError as error:
                now = self.get(cluster.metadata.name)
                if error.status == 422 and now.spec.stop is not None:
                    return now  # somebody was faster, and only the first stop counts
                raise

    def delete(self, ref: str, with_logs: bool = False) -> None:
        """See `Backend.delete`.

        Raises:
            Conflict: also when the output shall go and its volume is not mounted here.
        """
        cluster = self.get(ref)
        head, output = cluster.metadata, folders.output(self.mounts, cluster)
        if cluster.status.released_at is None:
            raise run_names.still_has_tasks(cluster)
        if with_logs and output is None:
            raise Conflict(
                _(
                    "the output of {name} lies in {folder} of a volume that is not mounted here: "
                    "delete it in a notebook of the cluster, or delete the record alone"
                ).format(name=head.name, folder=cluster.status.paths.get("output", "/log"))
            )
        with self._explained(head.name):
            left = self.api.delete(self._where(head.name), uid=head.uid)
        if left.get("metadata") and (names := keepers(left)):
            raise Conflict(
                _(
                    "{name} has ended and holds nothing, but its record stays as long as it has "
                    "the finalizer {finalizers}: whoever set that has to take it away, as by "
                    "`kubectl -n {namespace} patch tfcluster {name} --type=merge -p "
                    '\'{{"metadata":{{"finalizers":null}}}}\'`'
                ).format(name=head.name, finalizers=", ".join(names), namespace=self.namespace)
            )
        if with_logs and output is not None:
            shutil.rmtree(output, ignore_errors=True)
            with contextlib.suppress(OSError):
                output.parent.rmdir()

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
        output = folders.output(self.mounts, cluster)
        reader = Reader(self.api, cluster, wanted, output, counts)
        return self._with_explained_errors(reader.follow(tail) if follow else reader.once(tail))

    def _with_explained_errors(self, lines: Iterator[LogLine | None]) -> Iterator[LogLine | None]:
        with self._explained():
            yield from lines

    @overload
    def watch(self, ref: str) -> Iterator[TFCluster | None]: ...

    @overload
    def watch(self, ref: None = None) -> Iterator[TFCluster | Removed | None]: ...

    def watch(self, ref: str | None = None) -> Iterator[TFCluster | Removed | None]:
        """See `Backend.watch`."""
        if ref is None:
            return watching.every(self.api, self.namespace, records.read)
        return watching.one(self.api, self.namespace, self.get(ref), records.read)

    # -- what the verbs are made of ----------------------------------------------------------------

    def _where(self, name: str) -> str:
        return path("tfclusters", self.namespace, name)

    def _all_runs(self) -> Clusters:
        """All runs, in no order. Raises ApiError."""
        where = path("tfclusters", self.namespace)
        try:
            found = self.api.every(where).items
        except ApiError as error:
            if error.status != 410:
                raise
            found = self.api.every(where).items  # a page came too late: from the first one again
        return [cluster for each in found if (cluster := records.read(each)) is not None]

    def _names(self) -> Sequence[tuple[str, int]]:
        runs = run_names.newest_first(self._all_runs())
        return [(c.metadata.cluster, c.metadata.run) for c in runs]

    @contextlib.contextmanager
    def _explained(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            raise access.explain(error, what, server=self.api.server) from None
