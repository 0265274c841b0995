"""A small, complete bookie: journal, write cache, entry logs, location index, BookKeeper's v2 wire."""
