"""The container image, alone and in the test containers of other languages."""
