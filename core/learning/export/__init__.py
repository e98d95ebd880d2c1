"""Export of a version as an ONNX graph from pixels to probabilities, and the check of its answers.

onnx, onnxruntime and onnxscript are imported inside functions: learning needs none of them.
"""
