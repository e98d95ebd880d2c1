"""Devices of a worker, and checks of torch and CUDA."""
