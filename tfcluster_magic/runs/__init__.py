"""ClusterManager, the handle of a run, and the watcher of all runs, for every interface."""
