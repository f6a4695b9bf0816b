"""TORCH, synchronous: what hears and speaks. Load, log-mel, tower, KV slots, steps, drafters,
verifier.

It imports core.
"""
