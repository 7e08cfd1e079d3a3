"""The connection to an API server, and explanations of its errors.

Credentials are found as kubectl finds them: in the kubeconfig, or in the pod's service account.
Each `ApiError` becomes one `TFClusterError` that names the server, the request and what to do. The
module imports little, because every command calls `in_pod` to find out where clusters run.

Ref: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ Ref:
https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import (
    BackendUnavailable,
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    Problem,
    TFClusterError,
)
from ...i18n import _

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration

    from .client import Api, ApiError

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_pod() -> bool:
    """Return whether this process runs in a pod that may use the API server."""
    return (
        bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
        and (SERVICE_ACCOUNT_FOLDER / "token").is_file()
    )


def pod_namespace() -> str:
    """Return the namespace of this pod; empty outside of pods."""
    try:
        return (SERVICE_ACCOUNT_FOLDER / "namespace").read_text().strip()
    except OSError:
        return ""


def client_not_installed() -> BackendUnavailable:
    """Return the error for a missing official client."""
    return BackendUnavailable(
        _(
            "Kubernetes needs a package that is not installed. To install it in the clone of "
            "TFCluster, `pip install '.[kubernetes]'`"
        )
    )


DEFAULT_NAMESPACE = "default"
_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r'(?:.*in the namespace "(?P<namespace>[^"]*)")?'
)


def connect(context: str = "", namespace: str = "") -> tuple[Api, str]:
    """Return a connection and the default namespace.

    Credentials: `context` of the kubeconfig; else the kubeconfig that KUBECONFIG names; else the
    pod's service account, whose token is read again after rotation; else ~/.kube/config. Namespace:
    `namespace`; else TFCLUSTER_NAMESPACE; else the context's or service account's; else "default".

    Raises:
        BackendUnavailable: the package is not installed, or there are no usable credentials.
    """
    try:
        from kubernetes.client.configuration import Configuration
    except ImportError:
        raise client_not_installed() from None
    from .client import Api

    configuration = Configuration()
    if in_pod() and not context and not os.environ.get("KUBECONFIG"):
        found = _from_pod(configuration)
    else:
        found = _from_kubeconfig(configuration, context)
    chosen = namespace or os.environ.get("TFCLUSTER_NAMESPACE", "") or found or DEFAULT_NAMESPACE
    return Api(configuration), chosen


def _from_pod(configuration: Configuration) -> str:
    from kubernetes.config import ConfigException, load_incluster_config

    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return pod_namespace()
    except (ConfigException, OSError) as error:
        raise BackendUnavailable(
            _("the service account of this pod cannot be used: {why}").format(why=error)
        ) from None


def _from_kubeconfig(configuration: Configuration, context: str) -> str:
    import yaml
    from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config

    file = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    if not any(os.path.exists(each) for each in file.split(os.pathsep)):
        raise BackendUnavailable(
            _(
                "there is no kubeconfig at {file}, and this is no pod with a service account: set "
                "KUBECONFIG, or use `--backend local`"
            ).format(file=file)
        )
    try:
        contexts, active = list_kube_config_contexts(config_file=file)  # type: ignore[no-untyped-call]
        known = {each["name"]: each.get("context") or {} for each in contexts}
        name = context or active["name"]
        if name not in known:
            raise BackendUnavailable(
                _("the kubeconfig {file} has no context {context}; it has {known}").format(
                    file=file, context=name, known=", ".join(sorted(known))
                )
            )
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=file,
            context=name,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise BackendUnavailable(
            _("the kubeconfig {file} cannot be used: {why}").format(file=file, why=error)
        ) from None
    return str(known[name].get("namespace") or "")


# -- errors ----------------------------------------------------------------------------------------


def explain_api_error(error: ApiError, what: str = "", *, server: str = "") -> TFClusterError:
    """Return the error for the user that explains `error`.

    Args:
        error: an error of the API server, or of a proxy in front of it.
        what: the requested object, such as `digits-2 in namespace alice`; the message for status
            404 names it.
        server: the server's address, `Api.server`.
    """
    if error.unanswered:
        return _unanswered(error, server)
    if error.status == 401 or (error.status == 403 and "system:anonymous" in error.message):
        return BackendUnavailable(
            _(
                "the API server {server} does not accept these credentials; usually a token has "
                "expired. Sign in to the cluster again, until `kubectl get tfclusters` works; in "
                "a notebook, restart its server"
            ).format(server=server)
        )
    if error.status == 403:
        return _forbidden(error)
    if error.status == 404:
        return _missing(error, what)
    if error.status == 409:
        return Conflict(_("the API server refuses: {why}").format(why=error.message))
    if error.status == 422:
        return InvalidRequest(
            schema_problems(error) or [Problem(what or "spec", None, error.message)]
        )
    return TFClusterError(
        _("the API server {server} refuses ({status}): {why}").format(
            server=server, status=error.status, why=error.message or error.reason
        )
    )


def _unanswered(error: ApiError, server: str) -> BackendUnavailable:
    if error.status == 429:
        text = _(
            "the API server {server} is overloaded ({why}): running tasks continue; try again in "
            "a minute"
        )
    elif error.status:
        text = _(
            "the API server {server} answers {status} ({why}): running tasks continue; try again "
            "in a minute, and ask the cluster's administrator if this persists"
        )
    else:
        text = _(
            "the API server {server} does not answer ({why}): running tasks continue. Check that "
            "this is the right cluster and that the network (VPN, proxy) is up: `kubectl get "
            "--raw /readyz`"
        )
    why = _network_error_text(error.message) or error.reason
    return BackendUnavailable(text.format(server=server, status=error.status, why=why))


def _network_error_text(message: str) -> str:
    """Return the text of a network error, with the names of Python objects removed."""
    if found := re.search(r"\[Errno -?\d+\] ([^'\")]+)", message):
        return found.group(1)
    if "certificate verify failed" in message:
        detail = re.search(r"certificate verify failed: ([^(']+)", message)
        return _("its certificate is not trusted: {why}").format(
            why=detail.group(1).strip() if detail else "-"
        )
    if "timed out" in message.lower() or "timeout" in message.lower():
        return _("no answer in time")
    return re.sub(r"<[^>]*>:? ?|\w+Pool\([^)]*\):? ?", "", message)[:300]


def _forbidden(error: ApiError) -> TFClusterError:
    found = _FORBIDDEN.search(error.message)
    if not found:  # a quota or an admission policy, whose message says why
        return NotAllowed(_("the cluster refuses: {why}").format(why=error.message))
    from . import labels

    where = found["namespace"]
    if where and found["user"] == "system:serviceaccount:{}:{}".format(*labels.OPERATOR):
        return NotAllowed(
            _(
                "the operator may not {verb} {resource} in namespace {namespace}: an administrator "
                "of the cluster runs `{command}`"
            ).format(
                verb=found["verb"],
                resource=found["resource"],
                namespace=where,
                command=labels.opt_in_command(where, label=False),
            )
        )
    return NotAllowed(
        _(
            "{user} may not {verb} {resource} {where}: ask an administrator of the cluster to "
            "bind the ClusterRole tfcluster-user to this account in that namespace, or choose a "
            "namespace that is yours (TFCLUSTER_NAMESPACE)"
        ).format(
            user=found["user"],
            verb=found["verb"],
            resource=found["resource"],
            where=(
                _("in namespace {namespace}").format(namespace=where)
                if where
                else _("in the whole cluster")
            ),
        )
    )


def _missing(error: ApiError, what: str) -> TFClusterError:
    kind, name = error.details.get("kind"), error.details.get("name")
    if kind == "namespaces":
        return NotFound(
            _(
                "there is no namespace {name} on this cluster: name yours in TFCLUSTER_NAMESPACE"
            ).format(name=name)
        )
    if not name:  # the server does not know the path: the custom resource is missing
        return BackendUnavailable(
            _(
                "TFCluster is not installed on this cluster: it has no tfclusters.tfcluster.dev. "
                "Its administrator installs it with `kubectl apply -k k8s/overlays/default`"
            )
        )
    return NotFound(_("there is no {what}").format(what=what or f"{kind} {name}"))


def schema_problems(error: ApiError) -> list[Problem]:
    """Return the problems that a response with status 422 lists by field: violations of the schema
    or its rules.
    """
    found: list[Problem] = []
    for cause in error.details.get("causes") or []:
        value, allowed = _value_and_rule(str(cause.get("message", "")))
        field = str(cause.get("field", ""))
        problem = Problem("spec" if field in ("", "<nil>") else field, value, allowed)
        if problem not in found:
            found.append(problem)
    return found


def _value_and_rule(message: str) -> tuple[object, str]:
    """Split `Invalid value: 0: should be …` into (0, "should be …"). For an object, Kubernetes
    gives only `"object"` as the value, which is dropped.
    """
    label, _colon, rest = message.partition(": ")
    if label not in ("Invalid value", "Unsupported value", "Too long", "Too many"):
        return None, message
    try:
        value, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None, message
    rule = rest[end:].removeprefix(": ")
    return (None if value in ("object", "array") else value), rule or message
