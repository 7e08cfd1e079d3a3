"""Tenancy, a service that provisions a namespace for each user: rights, quotas, networks, claims.

`policy` and `namespace_objects` are pure, and the hub uses them too. `__main__` starts the service,
which owns the objects in tenants' namespaces. The hub creates only the namespaces themselves, and
the notebook pods in them.
"""
