"""Synchronous: load, log-mel, tower, KV slots, steps, drafters, verifier.

It imports core.
"""
