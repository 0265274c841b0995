"""Fields of one's own in the broker entry metadata."""
