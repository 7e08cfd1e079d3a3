"""The operator: one process that makes TFClusters of a Kubernetes cluster true.

Promises to be the only writer of status and objects (`leader`), to act on what it sees alone, so
that a restart at any moment changes nothing, and to need no finalizer: a TFCluster that is deleted
takes all with it by ownership. The lifecycle decides; `run` carries out.
"""
