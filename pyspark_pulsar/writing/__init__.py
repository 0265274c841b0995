"""The sink: rows to batches, batches to producers, each written once."""
