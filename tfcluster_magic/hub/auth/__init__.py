"""The hub's own accounts with passwords, for one machine and for small sites on Kubernetes.

`configure` sets them up in JupyterHub. `accounts` stores them and hashes passwords;
`password_authenticator` and `pages` are called by JupyterHub; `revocation` ends sessions;
`commands` are for administrators. `sign_in` chooses between these accounts and an OpenID Connect
provider (`openid_authenticator`).
"""

from __future__ import annotations

from pathlib import Path

from traitlets.config import Config

FILE = "accounts.json"


def configure(c: Config, *, state: Path) -> None:
    """Configure sign-in with the accounts in `state`/accounts.json."""
    c.JupyterHub.authenticator_class = (
        "tfcluster_magic.hub.auth.password_authenticator.AccountsAuthenticator"
    )
    c.AccountsAuthenticator.path = str(state / FILE)
    c.JupyterHub.template_vars = {"own_passwords": True}
