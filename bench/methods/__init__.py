"""Costs of learning: steps, memory and bytes of each method, beside plain PyTorch and beside
theory.
"""
