"""A notebook pod for each user, in a namespace of the user's own.

`spawner` is what the hub runs; it asks `tenants` for the namespace, `sizes` for what the policy
grants, and `trouble` for why a pod does not come up. `ending` is what becomes of one whose node is
lost. `reading` is the only part that asks the API.
"""
