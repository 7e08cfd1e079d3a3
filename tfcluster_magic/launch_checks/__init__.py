"""What may refuse a launch. Pure: facts and a spec in, every problem out.

The form of a spec is checked before, in `launch.validation`. Facts are gathered by who judges: a
backend for its user, and the operator for itself, since anybody may POST a TFCluster.
"""
