"""A client's view of the runs' namespace, and the facts for the checks of a launch.

The view covers the options that the operator published, whether the operator answers, and which
volumes are mounted here. The operator's Lease is read at most once in `CHECK_INTERVAL` seconds,
however many callers ask. No request delays a view for longer than `REQUEST_TIMEOUT`, and an
operator in an unknown state is not reported as down.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ... import paths
from ...errors import BackendUnavailable, InvalidRequest, PreflightRefused, Problem
from ...i18n import _
from ...kube.api import access, labels
from ...kube.api.client import API_PREFIXES, Api, ApiError, may_create, path
from ...kube.controller import leader_election
from ...kube.hour_ledgers import HOURS_KEY
from ...launch_checks.kubernetes import FACTS_KEY, ClientFacts, LaunchFacts
from ...launch_checks.kubernetes import read_facts as read_offer
from ...lifecycle.messages import shorten
from ...program.snapshots import INLINE_BYTES, stored_folder
from ...quota.ledger import HoursAccount
from ...quota.storage import FolderUsage
from ...spec import Spec, TFCluster, conversion, names
from .. import folder_sizes, run_names
from ..base import Options

OPTIONS_KEY = "options.json"
REQUEST_TIMEOUT = 5.0


def is_served(api: Api, namespace: str) -> bool:
    """Return whether an operator serves the namespace; True if this is unknown now.

    Raises:
        NotAllowed: TFCluster is installed on the cluster, and this account has no right to find out
            whether an operator serves the namespace.
        BackendUnavailable: TFCluster is installed, and the API server does not accept this account.
    """
    try:
        api.get(path("configmaps", namespace, labels.OPTIONS), seconds=REQUEST_TIMEOUT)
    except ApiError as error:
        if error.status not in (401, 403) or not _is_installed(api):
            return error.unanswered
        why = access.explain_api_error(error, server=api.server)
        # Do not fall back to clusters in this pod: the user did not ask for that.
        raise type(why)(
            _("{why}. To run clusters in this pod itself, set TFCLUSTER_BACKEND=local").format(
                why=why
            )
        ) from None
    return True


def operator_lease(api: Api, namespace: str) -> tuple[str, bool]:
    """Return the place (`namespace/name`) of the Lease of the operator that serves the namespace,
    and whether the operator published this place. Raises ApiError, also if no operator has served
    the namespace yet.
    """
    where = path("configmaps", namespace, labels.OPTIONS)
    return leader_election.lease_place(api.get(where, seconds=REQUEST_TIMEOUT))


def _is_installed(api: Api) -> bool:
    """Return whether the cluster knows TFClusters; every signed-in account may ask for this."""
    try:
        api.get(API_PREFIXES["tfclusters"], seconds=REQUEST_TIMEOUT)
    except ApiError as error:
        return not error.gone
    return True


def read_published(api: Api, namespace: str) -> tuple[Options, LaunchFacts, str]:
    """Return what the operator published for a namespace: the launch options, the facts from which
    the options are computed, and the text with the hours of the user's runs.

    Raises:
        ApiError: the API server refuses or does not answer.
        BackendUnavailable: the operator has published nothing, or what it published cannot be read.
    """
    try:
        told = api.get(path("configmaps", namespace, labels.OPTIONS))
    except ApiError as error:
        if not (error.gone and error.details.get("kind") == "configmaps"):
            raise
        raise BackendUnavailable(
            _(
                "the operator of TFCluster does not serve namespace {namespace} (it has no "
                "ConfigMap {name}): name another namespace in TFCLUSTER_NAMESPACE, or ask the "
                "cluster's administrator to run `{command}`"
            ).format(
                namespace=namespace,
                name=labels.OPTIONS,
                command=labels.opt_in_command(namespace),
            )
        ) from None
    said = told.get("data") or {}
    try:
        options = conversion.decode(said[OPTIONS_KEY], Options)
        return options, read_offer(said[FACTS_KEY]), str(said.get(HOURS_KEY, ""))
    except (KeyError, msgspec.MsgspecError) as error:
        raise BackendUnavailable(
            _(
                "what the operator published in {namespace} cannot be read; its version may "
                "differ from this package's: {why}"
            ).format(namespace=namespace, why=error)
        ) from None


# -- the limit of records --------------------------------------------------------------------------

_EXCEEDED = re.compile(
    rf"exceeded quota: .* limited: \S*{re.escape(labels.COUNTED_RECORDS)}=(?P<limit>\d+)"
)


def exceeded_record_limit(error: ApiError) -> int | None:
    """If the API server refused a new record because of the namespace's ResourceQuota, return the
    number of records that the quota allows; return None for any other error.
    """
    found = _EXCEEDED.search(error.message) if error.status == 403 else None
    return None if found is None else int(found["limit"])


def too_many_records(known: Sequence[TFCluster], limit: int) -> PreflightRefused:
    """Return the error for a namespace that has the maximum number of records. The error names the
    runs whose records count towards this maximum.
    """
    active = [each.metadata.name for each in known if each.status.released_at is None]
    ended = [each for each in known if each.status.released_at is not None]
    oldest = min(ended, key=lambda each: each.status.released_at or 0.0, default=None)
    if oldest is not None:
        name = oldest.metadata.name
        todo = _("Delete one that has ended: `tfcluster delete {name}`").format(name=name)
    else:
        name = active[0] if active else "NAME"
        todo = _("All of them run or wait: end one with `tfcluster delete {name}`").format(
            name=name
        )
    allowed = _(
        "the namespace may have {limit} clusters on record; it has {active} active ones "
        "({names}) and {ended} ended ones. {todo}"
    ).format(
        limit=limit,
        active=len(active),
        names=shorten(active, most=20) or "-",
        ended=len(ended),
        todo=todo,
    )
    return PreflightRefused([Problem(_("clusters on record"), len(known), allowed)])


# -- what an account may create --------------------------------------------------------------------

_OBJECTS_OF_RUNS = (
    ("", "configmaps"),
    ("", "services"),
    ("networking.k8s.io", "networkpolicies"),
    ("batch", "jobs"),
)
"""The kinds of Kubernetes objects that a run consists of, each as a pair: API group and plural
name.
"""


def not_creatable(api: Api, namespace: str) -> list[str]:
    """Return the kinds of a run's objects that this account may not create. Raises ApiError."""
    return [
        kind
        for group, kind in _OBJECTS_OF_RUNS
        if may_create(api, namespace, group, kind, seconds=REQUEST_TIMEOUT) is False
    ]


# -- whether the operator answers ------------------------------------------------------------------

CHECK_INTERVAL = 4.0
"""Seconds between two checks whether the operator answers."""
CHECK_INTERVAL_WHEN_UNKNOWN = 60.0
"""Seconds between two checks while the operator's state is unknown. The state is unknown if this
account may not read the operator's Lease. The state is also unknown if the operator did not publish
where its Lease is, and there is no Lease at the usual place.
"""
DAY = 86400.0


class OperatorStatus:
    """The operator's state as a client sees it.

    Args:
        api: the connection to the API server.
        place: returns the place of the operator's Lease, `namespace/name`, and whether the operator
            published the place. It may raise ApiError, and is called until it succeeds.
    """

    def __init__(self, api: Api, place: Callable[[], tuple[str, bool]]) -> None:
        self._api, self._find_place = api, place
        self._place, self._certain = "", False
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._away: tuple[float, str] | None = None
        """The time since which the operator has not answered, by this machine's clock, and the
        place of its Lease.
        """

    def notice(self) -> str:
        """Return the notice about an operator that does not answer; empty while it answers."""
        if self._lock.acquire(blocking=False):  # if the lock is taken, another thread is checking
            try:
                if time.monotonic() >= self._not_before:
                    self._check()
            finally:
                self._lock.release()
        away = self._away
        return "" if away is None else _outage_notice(*away)

    def _check(self) -> None:
        rest = CHECK_INTERVAL
        try:
            if not self._place:
                self._place, self._certain = self._find_place()
            silent = leader_election.silence_of_holder(self._api, self._place)
        except ApiError as error:
            # no Lease, no operator: an operator creates its Lease before it does anything else
            if error.gone and self._certain:
                self._away = self._away or (time.time(), self._place)
            elif not error.unanswered:
                self._away, rest = (
                    None,
                    CHECK_INTERVAL_WHEN_UNKNOWN if self._place else CHECK_INTERVAL,
                )
        else:
            if not silent:
                self._away = None
            # Later checks may compute a time that differs by 1 s, so the first one is kept.
            elif self._away is None:
                self._away = time.time() - silent, self._place
        self._not_before = time.monotonic() + rest


def _outage_notice(since: float, place: str) -> str:
    when = time.localtime(since)
    recent = time.time() - since < DAY / 2
    at = time.strftime("%H:%M:%S %z" if recent else "%Y-%m-%d %H:%M %z", when)
    return _(
        "The operator of TFCluster has not answered since {since}: running tasks continue, but "
        "launches and stops wait for it. Tell your administrator: `kubectl -n {namespace} get "
        "deployment,pod,lease`"
    ).format(since=at, namespace=place.partition("/")[0])


# -- mounted volumes -------------------------------------------------------------------------------
# A notebook pod mounts the volumes of its namespace at the same paths as tasks; a laptop or a
# notebook of another namespace does not mount them. A folder that happens to have the same path
# must not be taken for a folder of the runs. So `here` says whether this process is in a pod of the
# runs' own namespace (`mounts_volumes`).


def mounts_volumes(context: str, namespace: str) -> bool:
    """Return whether this process mounts the volumes of runs in this namespace. False if a context
    or a kubeconfig is used, because it may belong to another cluster with a namespace of the same
    name.
    """
    own = not context and not os.environ.get("KUBECONFIG")
    return own and access.in_pod() and access.pod_namespace() == namespace


def logs_folder(here: bool, log_dir: str) -> Path | None:
    """Return the folder of all runs' output, if it is mounted here."""
    return Path(log_dir) if here and log_dir and os.path.isdir(log_dir) else None


def output_folder(here: bool, cluster: TFCluster) -> Path | None:
    """Return the folder of a run's output if its volume is mounted here; the folder may not
    exist.
    """
    path = cluster.status.paths.get("output", "")
    return (
        Path(path) if path and logs_folder(here, os.path.dirname(os.path.dirname(path))) else None
    )


def why_not_mounted(here: bool, folder: str) -> str | None:
    """Return the reason why this process cannot read `folder`, a folder on the volumes of the
    cluster; None if it can.
    """
    top = folder.strip(os.sep).partition(os.sep)[0]
    if here and top and os.path.isdir(os.sep + top):
        return None
    return _(
        "{folder} lies on a volume of the cluster that is not mounted here: "
        "do this in a notebook that runs in the cluster"
    ).format(folder=folder or "/log")


def workspace_folder(here: bool) -> Path:
    """Return the user's folder that tasks also mount.

    Raises:
        InvalidRequest: tasks do not see any folder of this process.
    """
    if here:
        return Path.home()
    allowed = _(
        "it is larger than {limit} KiB, so it has to lie on the workspace volume, which only "
        "notebooks of the cluster mount: launch it there, or name it by its URL"
    ).format(limit=INLINE_BYTES // 1024)
    raise InvalidRequest([Problem("program", None, allowed)])


def next_run_number(
    here: bool,
    cluster: str,
    known: Sequence[TFCluster],
    log_dir: str,
    last: Mapping[str, int],
) -> int:
    """Return the number of a cluster's next run. The number is above the operator's published
    number (`last`), which includes deleted runs, and above the numbers of existing runs and logs.
    """
    used = [c.metadata.run for c in known if c.metadata.cluster == cluster]
    root = logs_folder(here, log_dir)
    kept = run_names.run_numbers(root / cluster) if root else ()
    return run_names.next_number({*used, *kept, last.get(cluster, 0)})


def claim_volumes(offer: LaunchFacts) -> list[FolderUsage]:
    """Return the usage of those claims of the namespace that this process mounts at the same paths
    as tasks.

    The usage is measured in the mounted folders. The kubelet's figures are not used: an account
    that may read them may also run commands in any pod. They are also wrong for storage classes
    whose volumes are folders of a larger disk.
    """
    policy, claims = offer.policy, offer.names.claims or {}
    places = (
        ("workspace", policy.workspace_claim, policy.workspace_path),
        ("data", policy.data_claim, policy.data_path),
        ("log", policy.log_claim, policy.log_path),
    )
    there = [
        folder_sizes.MeasuredFolder(name, Path(path), round(claims[claim].size), runs=name == "log")
        for name, claim, path in places
        if claim in claims and claims[claim].size and os.path.isdir(path)
    ]
    return folder_sizes.measure(there, paths.state_dir()) if there else []


# -- the facts of a launch -------------------------------------------------------------------------

_IMAGE = ("JUPYTER_IMAGE_SPEC", "JUPYTER_IMAGE")
"""Environment variables in which KubeSpawner names the image of a notebook's own pod."""


def gather_facts(
    spec: Spec,
    options: Options,
    offer: LaunchFacts,
    account: HoursAccount | None = None,
    numbers: Mapping[str, int] | None = None,
    *,
    here: bool,
) -> ClientFacts:
    """Return the facts for the checks of this launch: published facts and local facts."""
    own = next((os.environ[key] for key in _IMAGE if os.environ.get(key)), None)
    return ClientFacts(
        cluster=offer,
        options=options,
        now=time.time(),
        account=account or HoursAccount(),
        numbers=numbers or {},
        own_image=own if access.in_pod() else None,
        volumes=claim_volumes(offer) if here else (),
        lost_output=_lost_output(spec, logs_folder(here, options.log_dir)),
        lost_program=_lost_program(spec) if here else None,
    )


def _lost_output(spec: Spec, root: Path | None) -> Path | None:
    if spec.resume_from is None or root is None:
        return None
    cluster, run = names.parse_ref(spec.resume_from)
    folder = root / cluster / str(run)
    return None if folder.is_dir() else folder


def _lost_program(spec: Spec) -> Path | None:
    if spec.program is None or not spec.program.is_stored:
        return None
    folder = stored_folder(Path.home(), spec.program.sha256)
    return None if folder.is_dir() else folder
