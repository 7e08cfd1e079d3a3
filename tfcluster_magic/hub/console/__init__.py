"""The admin console: every cluster of the site, for the hub's administrators; a service of the hub.

The hub starts it beside itself (`service.py`) and it serves pages and the API that the pages and
`tfcluster admin` share (`routes`). What they show lies behind a `Site` (`sites/base.py`): this
machine, or a Kubernetes cluster. Every change and every look into a log is in the audit log
(`audit.py`).
"""
