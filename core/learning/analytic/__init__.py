"""Closed-form classifiers, computed from sums over a task's examples that later tasks add to."""
