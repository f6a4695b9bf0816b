"""Synchronous: load, log-mel, tower, KV slots, steps, drafters, verifier. Imports core."""
