"""Feedback while somebody speaks: how they usually speak, and a word where they leave it.

Pure: time is the audio's own. Of ours it imports core/measures, core/audio and core/declare.py.
"""
