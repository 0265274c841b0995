"""One topic's log: ledgers in a row, cursors over them, and the reads that cursors share."""
