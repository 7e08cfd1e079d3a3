"""The checks that may refuse a launch. Pure: facts and a spec in, every problem out.

The form of a spec is checked before, in `launch.validation`. Facts are gathered by the judge: a
backend for its user, and the operator again, since anybody may POST a TFCluster.
"""
