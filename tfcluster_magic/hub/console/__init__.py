"""The admin console: a service of the hub that shows administrators every cluster of the site.

The console is a separate process (`service.py`). It serves pages and the API that the pages and
`tfcluster admin` use (`routes`). A `Site` (`sites/base.py`) provides the data of this machine or of
a Kubernetes cluster. Every change and every reading of a log is in the audit log (`hub/audit.py`).
"""
