"""The text of ids: the vocabulary's table, characters, text deltas.

Imports nothing else of ours.
"""
