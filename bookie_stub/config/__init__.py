"""The bookie's settings: keys, their rules, and one value per room."""
