"""The bookie's settings: the table of its keys, their rules, and the values of its rooms."""
