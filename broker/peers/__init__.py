"""Requests of this broker to the others of its cluster.

peer_settings   how this broker proves to the others who it is, and whether connections begin with TLS
peers           at their admin ports: one request, one answer; the owner of a bundle
wires           at their data ports: commands of Pulsar's protocol (peer_connection)
"""
