"""What each of our controllers is made of, whatever it looks after: work queue, leader election,
process.

Knows no kind of object. The operator and the hub's tenancy are built on it.
"""
