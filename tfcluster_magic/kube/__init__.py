"""What both sides of the Kubernetes API say to each other: operator and backend import it, and it
imports neither. `api` and `informer` are the only modules here that touch a network.
"""
