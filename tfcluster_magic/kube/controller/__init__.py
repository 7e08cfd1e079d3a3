"""The parts of each of our controllers: work queue, leader election, process.

Knows no kind of object. The operator and the hub's tenancy are built on it.
"""
