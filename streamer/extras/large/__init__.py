"""Large models with weights of 8 or 4 bits: `--engine int8` and `--engine int4`.

It imports core and model; others reach it by the entry points `large` and `large.prepared`.
"""
