"""The Kubernetes API: access, client, caches, labels and amounts of resources."""
