"""The containers: built, started, used, stopped and started again. Needs a Docker Engine."""
