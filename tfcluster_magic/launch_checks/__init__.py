"""The checks that may refuse a launch. Pure: the checks take facts and a spec, and return every
problem.

`launch.validation` checks the form of a spec before. Two programs run the checks, each with facts
that it gathers itself: first a backend for its user, and then the operator, because a TFCluster can
be POSTed without a backend.
"""
