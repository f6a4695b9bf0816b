"""Samples to log-mel windows, voice activity, and where turns are cut.

Imports core.audio, core.measures and the compiled kernels.
"""
