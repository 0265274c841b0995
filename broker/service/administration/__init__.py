"""Documents of administrators, bundles, and operations on all topics of a namespace."""
