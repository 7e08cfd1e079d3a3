"""What the operator published for a namespace: what can be asked for, and what it will judge by."""

from __future__ import annotations

import msgspec

from ...errors import BackendUnavailable
from ...i18n import _
from ...kube.api import access, heartbeat, labels
from ...kube.api.client import GROUPS, Api, ApiError, path
from ...kube.capacity.ledgers import HOURS
from ...kube.capacity.offer import OFFER, Offer
from ...kube.capacity.offer import read as read_offer
from ..base import Options

OPTIONS = "options.json"
SOON = 5.0


def is_there(api: Api, namespace: str) -> bool:
    """Whether an operator serves the namespace; also when nobody can say at the moment.

    Raises:
        NotAllowed: TFCluster is installed on the cluster, and this account may not ask.
        BackendUnavailable: the same, and the account is not accepted at all.
    """
    try:
        api.get(path("configmaps", namespace, labels.OPTIONS), seconds=SOON)
    except ApiError as error:
        if error.status not in (401, 403) or not _is_installed(api):
            return error.unanswered
        why = access.explain(error, server=api.server)
        # Running them here instead would be what nobody who is missing a right asked for.
        raise type(why)(
            _("{why}. To run clusters in this pod itself, say TFCLUSTER_BACKEND=local").format(
                why=why
            )
        ) from None
    return True


def lease(api: Api, namespace: str) -> tuple[str, bool]:
    """Return where the Lease of the operator is that serves a namespace. Raises ApiError, also if
    no operator has served it yet.
    """
    where = path("configmaps", namespace, labels.OPTIONS)
    return heartbeat.place(api.get(where, seconds=SOON))


def _is_installed(api: Api) -> bool:
    """Whether the cluster knows TFClusters; everybody who is signed in may ask that."""
    try:
        api.get(GROUPS["tfclusters"], seconds=SOON)
    except ApiError as error:
        return not error.gone
    return True


def read(api: Api, namespace: str) -> tuple[Options, Offer, str]:
    """The options of a namespace, the offer behind them, and what is told of hours.

    Raises:
        ApiError: of the API server.
        BackendUnavailable: nothing is published, or it cannot be read.
    """
    try:
        told = api.get(path("configmaps", namespace, labels.OPTIONS))
    except ApiError as error:
        if not (error.gone and error.details.get("kind") == "configmaps"):
            raise
        raise BackendUnavailable(
            _(
                "the operator of TFCluster does not serve namespace {namespace} (it has no "
                "ConfigMap {name}): ask the cluster's administrator to label it "
                "{label}=true, or name another one in TFCLUSTER_NAMESPACE"
            ).format(namespace=namespace, name=labels.OPTIONS, label=labels.TENANT)
        ) from None
    said = told.get("data") or {}
    try:
        options = msgspec.json.decode(said[OPTIONS], type=Options)
        return options, read_offer(said[OFFER]), str(said.get(HOURS, ""))
    except (KeyError, msgspec.MsgspecError) as error:
        raise BackendUnavailable(
            _(
                "what the operator published in {namespace} cannot be read, it may be of another "
                "version than this package: {why}"
            ).format(namespace=namespace, why=error)
        ) from None
