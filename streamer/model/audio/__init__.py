"""Samples to log-mel windows, voice activity, and where turns are cut."""
