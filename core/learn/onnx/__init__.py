"""A version as an ONNX graph that takes pixels and gives probabilities, and the check that it answers as the
version does.

onnx, onnxruntime and onnxscript are imported inside functions: learning needs none of them.
"""
