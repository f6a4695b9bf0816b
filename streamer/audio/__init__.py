"""Recordings as blocks of samples: from a file, a pipe, or an array in memory.

Imports nothing else of ours but core.
"""
