"""Requests of this broker to the others of its cluster, over their admin ports.

peer_settings   how this broker proves to the others who it is, and whether connections begin with TLS
peers           one request, one answer; the owner of a bundle
"""
