"""Kubernetes code shared by the operator and the backend; it imports neither.

`api` < `objects` < `hour_ledgers` < `status` < `controller`: a package imports only packages to its
left. Only `api` and `controller` use the network.
"""
