"""The lineage of a model: start of the next task, standing of each task, guards against loss.

`standing` defines the standing of a task; `coverage` lists the tasks that a version was taught and
those it lacks; `gate` judges a version; `lineage` makes every change: publish, hold, settle,
promote, roll back, follow; `wording` describes it for people. The caller holds the lock on the
model's row, so that no two changes of one model run at the same time.
"""
