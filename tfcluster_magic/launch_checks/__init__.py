"""The checks that may refuse a launch. Pure: facts and a spec in, every problem out.

The form of a spec is checked before, in `launch.validation`. Each checker gathers its own facts: a
backend for its user, and then the operator, because a TFCluster can be POSTed without a backend.
"""
