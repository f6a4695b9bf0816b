"""Edge and verifier without a socket: messages, windows, backoff, a turn's two ends.

Imports core.decoding and core.rules.
"""
