"""Notebook pods, each in its user's own namespace.

The hub runs `spawner`. `namespace_creation` prepares the namespace, `pod_settings` applies what the
policy grants, and `startup_problems` explains why a pod does not start.
"""
