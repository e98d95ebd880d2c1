"""Edits: change labels, images and classes that a model was taught, and make a version of them.

`operation_checks` reads the operations, `acceptance` queues a job for them, `rewrite` makes the
edited data, `record` changes the rows in the publishing transaction, and `undo` takes an edit back.
The job itself is `core.execution.kinds.edit`.
"""
