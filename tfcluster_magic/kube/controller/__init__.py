"""The parts that controllers share: work queue, leader election and process. They know no kind of
object. The operator and the hub's tenancy are built on them.
"""
