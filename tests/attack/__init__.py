"""Attacks on the product: hostile inputs, kills and races. Each attack is made on a hub and on runs
that were started for it.

`make attack` runs all attacks (`__main__`); the module `cases` runs one case, and `target` starts
the hub and the runs. Every other module is one kind of attack, with a table `CASES`.
"""
