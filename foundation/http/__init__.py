"""What the HTTP ports of all processes share."""
