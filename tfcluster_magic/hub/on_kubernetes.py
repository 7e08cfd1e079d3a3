"""The hub on Kubernetes, as k8s/hub runs it: notebooks are pods in the namespaces of their users.

Hub, proxy and notebooks reach each other by Service names. Notebooks pass Pod Security
"restricted". All secrets come from the environment. Sizes, images and nodes come from the policy,
which is read at each spawn (`spawning`). `sign_in` decides who may sign in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from traitlets.config import Config

from ..kube.api.labels import NOTEBOOK
from . import idle_culler, notebook, shared_settings
from .auth import sign_in
from .console import service as console
from .spawning.namespace_creation import PREPARE_HANDLERS
from .spawning.pod_settings import GROUP, USER, VOLUMES, pod_security
from .tenancy import namespace_objects

STATE = Path("/srv/jupyterhub")
HUB_PORT, PROXY_PORT, CONSOLE_PORT = 8081, 8001, 8090
NOTEBOOK_PRIORITY = "tfcluster-notebook"
EXAMPLES = "/usr/local/share/tfcluster/examples"
"""Folder of the examples in images/notebook."""
TENANCY_SCOPES = ["list:groups", "read:groups", "list:users", "read:users:name"]


@dataclass(frozen=True)
class KubernetesHubSettings:
    """Settings that k8s/hub passes to the hub as environment variables."""

    state: Path
    namespace: str
    image: str
    tenancy_token: str
    console_token: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> KubernetesHubSettings:
        """Read the settings from TFCLUSTER_HUB_*."""
        return cls(
            state=Path(environ.get("TFCLUSTER_HUB_STATE", str(STATE))),
            namespace=environ.get("TFCLUSTER_HUB_NAMESPACE", "tfcluster-hub"),
            image=environ.get("TFCLUSTER_HUB_NOTEBOOK_IMAGE", "tfcluster/notebook"),
            tenancy_token=environ.get("TFCLUSTER_HUB_TENANCY_TOKEN", ""),
            console_token=environ.get("TFCLUSTER_HUB_CONSOLE_TOKEN", ""),
        )


def configure(c: Config) -> None:
    """Configure the hub on Kubernetes from the environment (see `KubernetesHubSettings`)."""
    settings = KubernetesHubSettings.of(os.environ)
    shared_settings.configure(c, state=settings.state)
    sign_in.configure(c, state=settings.state)
    # Use loopback: the NetworkPolicies do not let the hub connect to itself by its Service.
    api = f"http://127.0.0.1:{HUB_PORT}{shared_settings.base_url()}hub/api"
    idle_culler.configure(c, by_policy=True, api=api)
    _network(c, settings)
    _notebooks(c, settings)
    _tenancy(c, settings)
    _console(c, settings)


def _network(c: Config, settings: KubernetesHubSettings) -> None:
    c.JupyterHub.bind_url = f"http://:8000{shared_settings.base_url()}"
    c.JupyterHub.hub_bind_url = f"http://:{HUB_PORT}"
    if not shared_settings.subdomain_host() and (url := shared_settings.public_url()):
        # Notifications link to this address. If there is a subdomain host, JupyterHub already knows
        # the address from it.
        c.JupyterHub.public_url = url
    # This name resolves from notebooks' namespaces, whatever the cluster's domain.
    c.JupyterHub.hub_connect_url = f"http://hub.{settings.namespace}:{HUB_PORT}"
    c.ConfigurableHTTPProxy.should_start = False  # the proxy outlives the hub
    c.ConfigurableHTTPProxy.api_url = f"http://proxy-api:{PROXY_PORT}"
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # show the progress page at once
    # Seconds between two reads of activity from the proxy. At the same interval, JupyterHub
    # restores the routes of a proxy that was restarted.
    c.JupyterHub.last_activity_interval = 10


def _notebooks(c: Config, settings: KubernetesHubSettings) -> None:
    c.JupyterHub.spawner_class = "tfcluster_magic.hub.spawning.spawner.TenantSpawner"
    c.JupyterHub.extra_handlers = list(PREPARE_HANDLERS)
    c.TenantSpawner.hub_namespace = settings.namespace
    c.TenantSpawner.notebook_image = settings.image
    spawner = c.KubeSpawner
    spawner.enable_user_namespaces = True
    spawner.user_namespace_template = f"{namespace_objects.namespace_prefix()}{{username}}"
    spawner.events_enabled = False  # otherwise the hub would watch all namespaces
    spawner.storage_pvc_ensure = False  # tenancy creates the claims
    spawner.delete_pvc = False
    spawner.service_account = "notebook"
    spawner.automount_service_account_token = True  # %tfcluster calls the Kubernetes API with it
    spawner.priority_class_name = NOTEBOOK_PRIORITY
    spawner.extra_labels = {NOTEBOOK: "true"}
    spawner.cmd = notebook.command(python="python")
    spawner.args = [f"--workspace={VOLUMES['workspace']}", f"--examples={EXAMPLES}"]
    spawner.default_url = "/lab"
    spawner.ip = "0.0.0.0"  # noqa: S104  the pod's NetworkPolicy says who may connect
    spawner.start_timeout = 300
    spawner.http_timeout = 120  # seconds; a first start on a cold disk reads all of JupyterLab
    spawner.delete_grace_period = 5
    spawner.uid, spawner.gid, spawner.fs_gid = USER, GROUP, GROUP
    spawner.allow_privilege_escalation = False
    spawner.container_security_context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    spawner.pod_security_context = pod_security()
    spawner.extra_pod_config = {"enableServiceLinks": False}


def _tenancy(c: Config, settings: KubernetesHubSettings) -> None:
    """Register tenancy, the service that prepares namespaces and reads the hub's groups."""
    if settings.tenancy_token:
        c.JupyterHub.services.append({"name": "tenancy", "api_token": settings.tenancy_token})
        role = {"name": "tenancy", "services": ["tenancy"], "scopes": TENANCY_SCOPES}
        c.JupyterHub.load_roles.append(role)


def _console(c: Config, settings: KubernetesHubSettings) -> None:
    """Register the admin console, a separate Deployment; the hub does not wait for it."""
    if settings.console_token:
        url = f"http://console:{CONSOLE_PORT}"
        console.register(c, url=url, token=settings.console_token, timeout=2)
