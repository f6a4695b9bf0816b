"""The text of ids: the vocabulary's table, characters, fragments of characters, text deltas.

Imports nothing else of ours.
"""
