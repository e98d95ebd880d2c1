"""Trials: several recipes for a batch, of which the best becomes the version.

`plan` checks the recipes of a request or finds some that fit, `choice` compares measured ones,
`choosing` lets a person choose, and `listing` shows them. The job itself is
`core.execution.trials`.
"""
