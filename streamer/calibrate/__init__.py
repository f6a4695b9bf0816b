"""`streamer calibrate`: a gate's thresholds from recordings and a stated risk.

Imports every room but net.
"""
