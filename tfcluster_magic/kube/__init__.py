"""Kubernetes, for both sides of its API: operator and backend import this, it imports neither.

`api` < `objects` < `hour_ledgers` < `status` < `controller`, each importing only those before it.
Only `api` and `controller` touch a network.
"""
