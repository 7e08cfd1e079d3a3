"""A real Kubernetes cluster of one or two nodes on this machine, for tests. Each node is a set of
Linux namespaces.

`python -m kubenode` in the folder above is its command line; README.md there describes it. This
package uses only the standard library, so that builds can start before anything is installed.
"""
