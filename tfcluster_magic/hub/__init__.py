"""JupyterHub for TFCluster: sign-in, a notebook for each user, and a namespace each on Kubernetes.

`embedded` and `on_kubernetes` configure JupyterHub; hub_config/jupyterhub_config.py calls one of
them. No kernel, task or command line imports this package.
"""
