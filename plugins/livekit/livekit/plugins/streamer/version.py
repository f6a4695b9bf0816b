"""The version of the plug-in."""

__version__ = "0.1.0"
