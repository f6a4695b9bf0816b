"""Files of a timeline (core/timeline.py): JSON, WebVTT captions, or a picture."""

from streamer.core.installed import ignore_matplotlibrc

ignore_matplotlibrc()  # before matplotlib is imported
