"""Files of a timeline (core/timeline.py): JSON, WebVTT captions, a TextGrid, or a picture."""
