"""How somebody speaks, as numbers with units: their definitions, and nothing that hears.

Imports nothing else of ours. The labels that the embedded models learnt from use the same functions
(pipelines/embedded/labels.py).
"""
