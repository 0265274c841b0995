"""Parts that all rooms of the bookie use: errors, files, counters."""
