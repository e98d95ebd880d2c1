"""Trials: several recipes for a batch, of which the best becomes the version.

`plan` checks the recipes of a request or finds some that fit, `trial_comparison` compares measured
ones, `trial_selection` lets a person choose, and `listing` shows them. The job itself is
`core.execution.trials`.
"""
