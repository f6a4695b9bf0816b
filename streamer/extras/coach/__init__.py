"""Feedback while somebody speaks: how they usually speak, and a nudge where they leave it.

Pure but for `session.py`. Time is that of the session's sound.
"""
