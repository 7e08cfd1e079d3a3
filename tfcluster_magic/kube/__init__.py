"""Kubernetes code shared by the operator and the backend; it imports neither.

`api` < `objects` < `hour_ledgers` < `status` < `controller`: each imports only those before it.
Only `api` and `controller` use the network.
"""
