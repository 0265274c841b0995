"""Deletion of topics, namespaces and tenants: decided in one write, carried out in a fixed order, resumed after a crash.

Intents      the decisions that are stored and not carried out yet
Deletions    decides, carries out, and resumes
"""
