"""JupyterHub for TFCluster: sign-in, and a notebook and a Kubernetes namespace for each user.

`embedded` and `on_kubernetes` configure JupyterHub; hub_config/jupyterhub_config.py calls one of
them. No kernel, task or `tfcluster` command imports this package.
"""
