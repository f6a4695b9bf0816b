"""A gate's threshold from a stated risk: bounds, certificates, a turn at every threshold.

Imports core.decoding.
"""
