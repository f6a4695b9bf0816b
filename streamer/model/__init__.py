"""TORCH, synchronous: load, log-mel, tower, KV slots, `Engine.step`, drafters, verifier, voice activity."""
