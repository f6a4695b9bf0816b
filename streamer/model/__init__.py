"""TORCH, synchronous: load, log-mel, tower, KV slots, steps, drafters, verifier.

It imports core. numba is imported by modules of this package alone, after the line below.
"""

from streamer.model.numba_config import ignore_config_file

ignore_config_file()
