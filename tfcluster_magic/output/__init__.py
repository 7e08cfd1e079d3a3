"""Output for users and programs: text, documents and MIME bundles made from the models.

This package only turns models into text; its callers print or send the text. In text, strings from
a program or a user have no control characters; in HTML, they are escaped. Log lines are not
changed.
"""
