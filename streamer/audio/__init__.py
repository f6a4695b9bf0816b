"""Recordings as blocks of samples: from a file, through ffmpeg, or from an array in memory.

Imports nothing else of ours but core.
"""
