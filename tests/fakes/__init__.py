"""Stand-ins of a few lines for what stands above and below the service, shared by the tests of several rooms."""
