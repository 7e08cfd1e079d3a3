"""Output for people and programs: text, documents and MIME bundles made from the models.

Pure: models in, text out; the faces decide where it goes. Everything that came from a program or a
user is stripped of control characters in text and escaped in HTML, except the log lines themselves.
"""
