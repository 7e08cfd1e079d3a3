"""Tenancy, a service that provisions a namespace for each user: rights, quotas, networks, claims.

`policy` and `namespace_objects` are pure, and the hub reads them too. `__main__` starts the
service, which owns the objects in tenants' namespaces. The rest of the hub creates only namespaces
and notebook pods there.
"""
