"""The bookie's settings: keys, rules, and the values of its rooms."""
