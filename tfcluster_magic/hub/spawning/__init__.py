"""Notebook pods, each in its user's own namespace.

The hub runs `spawner`. It uses `namespace_creation` for the namespace, `pod_settings` for what the
policy grants, and `startup_problems` for why a pod does not start.
"""
