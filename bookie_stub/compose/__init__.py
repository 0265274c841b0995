"""The bookie as a whole: its parts joined, started and stopped."""
