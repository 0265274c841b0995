"""What to read: topics, positions, offsets, limits. Decided on the driver."""
