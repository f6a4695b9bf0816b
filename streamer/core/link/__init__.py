"""The link between an edge and a verifier without a socket: messages, windows, backoff, both sides
of a turn.

Imports core.decoding and core.rules.
"""
