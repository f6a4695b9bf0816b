"""How somebody speaks, as numbers with units: their definitions, and nothing that hears.

It imports core/audio and core/rules alone. The labels that the embedded models learnt from use the
same functions (pipelines/embedded/labels.py).
"""
