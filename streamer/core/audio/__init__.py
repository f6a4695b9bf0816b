"""Samples before any model: cutting PCM into chunks, and what hearing hands on.

Imports nothing else of ours.
"""
