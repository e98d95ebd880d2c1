"""Programs for people, such as the demo and import tools, with helpers for tests and benchmarks."""
