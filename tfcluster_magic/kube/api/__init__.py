"""The API of Kubernetes: access, client, caches, labels and amounts of resources."""
