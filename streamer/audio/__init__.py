"""Recordings as blocks of samples: from a file, or from an array in memory.

Imports nothing else of ours.
"""
