"""What both sides of the Kubernetes API share: operator and backend import it, it imports neither.

`api` < `objects` < `hour_ledgers` < `status` < `controller`, each importing only those before it.
Only `api` and `controller` touch a network.
"""
