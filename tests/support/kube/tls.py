"""TLS at the ingress controller of the project's own node: certificates for hosts, and browsers.

The authority is the cluster's own. Nothing outside this process is changed: a browser is given the
address of a host name directly.
"""

from __future__ import annotations

import base64
import socket
import ssl
from typing import Any

import requests
from kubenode import ingress
from kubenode.cluster import Cluster
from kubenode.door import open_door
from kubenode.pki import Pki
from requests.adapters import HTTPAdapter
from support.hub.visitor import Visitor
from support.kube.kubectl import Kubectl, Object


class Entrance:
    """The controller's port for TLS, on 127.0.0.1."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        """Open a port of this machine that leads to the controller; `name` is part of its log's
        name. The port closes with the node.
        """
        self.door = open_door(cluster.first, f"tls-{name}", ingress.TLS_PORT)
        self._pki = Pki(cluster.first)
        self.authority = self._pki.folder / "ca.crt"

    def secret(self, kube: Kubectl, name: str, host: str) -> str:
        """Create a certificate for a host and a Secret with it; return the certificate as PEM."""
        self._pki.issue(name, f"/CN={host}", [f"DNS:{host}"])
        files = {"tls.crt": self._pki.folder / f"{name}.crt"}
        files["tls.key"] = self._pki.folder / f"{name}.key"
        made: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(at.read_bytes()).decode() for key, at in files.items()},
        }
        kube.apply(made)
        return _alike(files["tls.crt"].read_text())

    def shown(self, host: str) -> str:
        """Return the certificate that the controller shows for a host, as PEM; any signer is
        accepted.
        """
        lenient = ssl.create_default_context()
        lenient.check_hostname, lenient.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", self.door), timeout=20) as plain,
            lenient.wrap_socket(plain, server_hostname=host) as talk,
        ):
            return _alike(ssl.DER_cert_to_PEM_cert(talk.getpeercert(binary_form=True) or b""))


def _alike(pem: str) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(pem))


class Secure(Visitor):
    """A browser that trusts only the entrance's authority, and uses no proxy of this machine."""

    def __init__(self, url: str, entrance: Entrance) -> None:
        super().__init__(url)
        self.session.trust_env = False
        self.session.verify = str(entrance.authority)

    def socket(self, path: str, **words: Any) -> Any:
        """Open a websocket over TLS."""
        return super().socket(path, sslopt={"ca_certs": str(self.session.verify)}, **words)

    def answers(self, path: str, **headers: str) -> bool:
        """Return whether a page answers 200 with these headers; False if its certificate is of an
        authority that the browser does not trust.
        """
        try:
            found = self.get(path)
        except requests.RequestException:
            return False
        return found.status_code == 200 and headers.items() <= found.headers.items()

    def finds(self, host: str, entrance: Entrance) -> None:
        """Resolve https://<host> to the entrance, as a line in /etc/hosts would."""
        self.session.mount(f"https://{host}/", _Through(host, entrance.door))


class _Through(HTTPAdapter):
    def __init__(self, host: str, door: int) -> None:
        self.host, self.door = host, door
        super().__init__()

    def init_poolmanager(self, *words: Any, **more: Any) -> None:
        names = {"server_hostname": self.host, "assert_hostname": self.host}
        super().init_poolmanager(*words, **more, **names)

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:  # type: ignore[override]
        asked = request.url or ""
        inner = request.copy()
        inner.headers["Host"] = self.host
        inner.url = asked.replace(f"https://{self.host}/", f"https://127.0.0.1:{self.door}/", 1)
        answer = super().send(inner, **more)
        answer.url = asked
        return answer
