"""Curvature of the loss around a solution: measures which parameters matter to what was learned."""
