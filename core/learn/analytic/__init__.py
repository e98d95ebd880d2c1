"""Classifiers in closed form: all that they need of a task are sums over its examples, which later tasks add to."""
