"""Admin API of namespaces, their bundles and policies."""
