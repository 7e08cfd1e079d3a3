"""Objects of a run in Kubernetes: custom resource, pods, Jobs, NetworkPolicy, manifests."""
