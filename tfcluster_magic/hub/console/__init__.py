"""The admin console: every cluster of the site, for the hub's administrators; a service of the hub.

The hub starts it beside itself (`service.py`) and it serves one page and the API that the page and
`tfcluster admin` share (`routes.py`). What it shows lies behind `world.World`; `here.py` is this
machine. Every change and every look into a log is in the audit log (`audit.py`).
"""
