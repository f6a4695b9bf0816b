"""One model's step (engine.py), and models that torch runs (load.py)."""
