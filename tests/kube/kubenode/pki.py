"""The cluster's certificates: one authority, and a separate certificate for every server and user.

No identity is shared, so that RBAC is enforced in tests as elsewhere. Keys never leave the
cluster's state folder (mode 0700), and all of them are made anew at every start.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from .node import Node

DAYS = "30"
API_HOSTS = [
    "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc", "DNS:localhost",
    "DNS:kubernetes.default.svc.cluster.local", "IP:10.96.0.1", "IP:127.0.0.1",
]  # fmt: skip
NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


class Pki:
    """Certificates in `folder`, made with the openssl of `node`."""

    def __init__(self, node: Node) -> None:
        """Refer to the cluster's certificates."""
        self.node = node
        self.folder = node.state / "pki"

    def begin(self) -> None:
        """Make the authorities, the key of service accounts, and the identity of every server."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("ca", "front-proxy-ca"):
            files = f"-keyout {name}.key -out {name}.crt"
            self._openssl(f"req -x509 {NEW_KEY} -days {DAYS} -subj /CN={name} {files}")
        self._openssl("genrsa -out sa.key 2048")
        self._openssl("rsa -in sa.key -pubout -out sa.pub")
        self.issue("apiserver", "/CN=kube-apiserver", [*API_HOSTS, f"IP:{self.node.ip}"])
        self.issue("apiserver-kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client")
        self.issue("front-proxy-client", "/CN=front-proxy-client", by="front-proxy-ca")
        self.user("admin", "/O=system:masters/CN=admin")
        self.user("kube-controller-manager", "/CN=system:kube-controller-manager")
        self.user("kube-scheduler", "/CN=system:kube-scheduler")
        self.user("kube-proxy", "/CN=system:kube-proxy")
        # The rights of these servers are in manifests/.
        for server in ("coredns", "kube-network-policies", "traefik"):
            self.user(server, f"/CN={server}")

    def kubelet(self, node: Node) -> None:
        """Make the certificate of a node's kubelet, both as a client of the API and as a server."""
        hosts = [f"DNS:{node.name}", f"IP:{node.ip}"]
        self.user(node.name, f"/O=system:nodes/CN=system:node:{node.name}", hosts)

    def user(self, name: str, subject: str, hosts: Sequence[str] = ()) -> None:
        """Issue a certificate for a user of the API, and write `<name>.kubeconfig` with it."""
        self.issue(name, subject, hosts)
        config = self.kubeconfig(f"https://{self.node.ip}:6443", name)
        (self.folder / f"{name}.kubeconfig").write_text(json.dumps(config, indent=1))

    def issue(self, name: str, subject: str, hosts: Sequence[str] = (), by: str = "ca") -> None:
        """Make `<name>.key` and `<name>.crt` for a subject and its host names."""
        extensions = "extendedKeyUsage=clientAuth,serverAuth\n"
        extensions += f"subjectAltName={','.join(hosts)}\n" if hosts else ""
        (self.folder / f"{name}.ext").write_text(extensions)
        self._openssl(f"req {NEW_KEY} -subj {subject} -keyout {name}.key -out {name}.csr")
        self._openssl(
            f"x509 -req -in {name}.csr -CA {by}.crt -CAkey {by}.key -days {DAYS} "
            f"-extfile {name}.ext -out {name}.crt"
        )

    def kubeconfig(self, server: str, user: str) -> dict[str, object]:
        """Return a kubeconfig that contains its certificates, so that it needs no other file."""

        def data(file: str) -> str:
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        name = self.node.cluster
        cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
        identity = {
            "client-certificate-data": data(f"{user}.crt"),
            "client-key-data": data(f"{user}.key"),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }

    def _openssl(self, arguments: str) -> None:
        self.node.run(["sh", "-c", f"cd {self.folder} && openssl {arguments}"])
