"""JupyterHub for TFCluster: sign-in, a notebook for each user, on Kubernetes a namespace for each.

`embedded` and `on_kubernetes` say what hub_config/jupyterhub_config.py hands to JupyterHub.
Nothing here is imported by a kernel, a task or the command line.
"""
