"""What several tests share. Nothing in here decides whether a test passes."""
