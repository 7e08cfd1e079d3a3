"""What a run is in Kubernetes: custom resource, pods, Jobs, NetworkPolicy, manifests."""
