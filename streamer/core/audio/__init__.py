"""Samples before any model: PCM into chunks, the sound of a turn, and the items of hearing.

Imports core.measures.frames alone.
"""
