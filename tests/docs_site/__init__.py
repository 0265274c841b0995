"""The documentation site: what `make docs` builds, and its pages in a browser."""
