"""Attacks on the product: hostile inputs, kills and races. Each attacks a hub and runs that are
made for it.

`make attack` runs all attacks (`__main__`); `cases` runs one case, and `target` is what it attacks.
Every other module is one kind of attack, with a table `CASES`.
"""
