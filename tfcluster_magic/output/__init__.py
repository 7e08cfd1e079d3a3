"""Output for users and programs: text, documents and MIME bundles made from the models.

This package only turns models into text; its callers write it. Strings from a program or a user are
stripped of control characters in text and escaped in HTML. Log lines are not.
"""
