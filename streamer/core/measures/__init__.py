"""How somebody speaks, as numbers with units: their definitions, and nothing that hears.

Of ours it imports core/audio/pcm.py alone. The labels that the embedded models learnt from use the
same functions (pipelines/embedded/labels.py).
"""
