"""The operator: one process that runs the TFClusters of a Kubernetes cluster.

Only the leader writes status and objects (`kube.controller.leader_election`). The operator acts
only on what it observes, so a restart at any moment changes nothing. It needs no finalizer: when a
TFCluster is deleted, Kubernetes deletes the objects that the TFCluster owns.

`cluster_state` caches the cluster, `hours_ledgers` counts hours, `pending_tasks` explains waiting
tasks, `scheduling` admits runs, `lifecycle` decides and `reconcile` applies the decisions.
"""
