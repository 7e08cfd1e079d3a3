"""A notebook pod for each user, in a namespace of the user's own.

`spawner` is what the hub runs; it asks `namespaces` for the namespace, `pod_settings` for what the
policy grants, and `startup_problems` for why a pod does not come up.
"""
