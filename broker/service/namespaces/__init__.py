"""Namespaces, tenants and clusters: what administrators have stored about them, and their bundles."""
