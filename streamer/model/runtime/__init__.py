"""ONNX Runtime by its one door. Imports nothing of ours."""
