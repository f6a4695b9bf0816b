"""What loading stands on: ONNX Runtime by its one door, and how far loading is.

Imports nothing of ours.
"""
