"""Files of a timeline (core/timeline.py): JSON, WebVTT captions, or a picture."""
