"""Programs for people: the demo, an operator's import tool, and what they share with tests and benchmarks."""
