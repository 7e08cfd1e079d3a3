"""Attacks on the product: hostile inputs, kills and races, against a hub and runs made for them.

`make attack` runs them (`__main__`); `cases` runs a case, `target` is what it attacks. Every other
module is one kind of attack, with a table `CASES`.
"""
