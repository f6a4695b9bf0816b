"""The commands of `streamer`: what each prints, and how a process starts and ends.

Imports every room.
"""
