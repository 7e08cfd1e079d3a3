"""Accounts of the hub's own, with passwords: for one machine, and for small sites on Kubernetes.

`configure` hands them to JupyterHub. `accounts` keeps them and hashes passwords;
`password_authenticator` and `pages` are JupyterHub's side; `revocation` ends sessions; `commands`
are an administrator's. `sign_in` decides between them and a provider (`openid_authenticator`).
"""

from __future__ import annotations

from pathlib import Path

from traitlets.config import Config

FILE = "accounts.json"


def configure(c: Config, *, state: Path) -> None:
    """Have the hub ask for passwords of the accounts in `state`/accounts.json."""
    c.JupyterHub.authenticator_class = (
        "tfcluster_magic.hub.auth.password_authenticator.AccountsAuthenticator"
    )
    c.AccountsAuthenticator.path = str(state / FILE)
    c.JupyterHub.template_vars = {"own_passwords": True}
