"""Samples before any model: PCM to 16 kHz, and a turn with the items of hearing it."""
