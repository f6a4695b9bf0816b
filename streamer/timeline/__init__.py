"""A recording's timeline as a file: JSON, WebVTT captions, or a picture.

What it holds is core/timeline.py's. The picture needs matplotlib: `streamer-speech[plot]`.
"""
