"""Features that Pulsar has and this broker lacks: their values are checked, stored and shown, and nothing obeys them."""
