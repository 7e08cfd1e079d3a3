"""The operator: one process that makes TFClusters of a Kubernetes cluster true.

It is the only writer of status and objects (`kube.controller.leader_election`). It acts on what it
sees alone, so that a restart at any moment changes nothing, and needs no finalizer: a TFCluster
that is deleted takes all with it by ownership. `lifecycle` decides; `reconcile` carries out.

`cluster_state` reads, `accounting` counts, `pending_tasks` explains, `scheduling` admits,
`reconcile` changes.
"""
