"""What each controller of ours is made of, whatever it looks after: a queue, a Lease, health, logs.

Knows no kind of object. The operator and the hub's tenancy are built on it.
"""
