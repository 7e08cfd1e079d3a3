"""The checks that may refuse a launch. The checks take facts and a spec, and return every problem;
they read nothing else and change nothing.

Before these checks, `launch.validation` checks the form of a spec. Two programs run the checks,
each with facts that it gathers itself: first a backend, for its user, and then the operator,
because a client can create a TFCluster without a backend.
"""
