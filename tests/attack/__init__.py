"""Attacks on the product: hostile inputs, kills and races, against a hub and runs of their own.

`make attack` runs them (`__main__`); `cases` says what one is, `ground` what it is tried against.
Each other module is a kind, with a table `CASES`.
"""
