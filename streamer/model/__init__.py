"""TORCH, synchronous: load, log-mel and windows, encoder, KV slots, `Engine.step`, drafters, verifier, voice activity."""
