"""The notifier: sends users' notifications on Kubernetes, in a process and with an account of its
own.
"""
