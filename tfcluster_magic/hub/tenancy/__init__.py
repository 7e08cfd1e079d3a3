"""A namespace for each user, provisioned and kept right: rights, quotas, network policies, claims.

`policy` and `namespace_objects` are pure and read by the hub, too; `__main__` starts the service
that owns what is in tenants' namespaces. Nothing else of the hub writes there but namespaces and
notebook pods.
"""
