"""Curvature of the loss around a solution: which parameters matter to what was learned."""
