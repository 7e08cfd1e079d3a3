"""ClusterManager, the handle of a run, and the watcher of all runs: what every interface uses."""
