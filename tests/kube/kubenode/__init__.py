"""A real Kubernetes cluster of one or two nodes on this machine, for tests: each node is a set of
namespaces.

`python -m kubenode` in the folder above is its command line; README.md there is the tour.
It uses the standard library alone, so that builds can begin before anything is installed.
"""
