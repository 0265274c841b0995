"""The parts that every other room of the bookie uses: errors, files, counters, records."""
