"""The parts that controllers share: work queue, leader election and process. These parts work for
any kind of object. The operator and the hub's tenancy are built on them.
"""
