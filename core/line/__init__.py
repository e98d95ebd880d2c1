"""The line of a model: what the next task starts from, where each task stands, and what may not be lost on the way.

`standing` names where a task stands; `coverage` says what a version was taught and what it lacks; `gate` judges a
version; `line` holds every change: publish, hold, settle, promote, roll back, follow; `words` says it to a person.
Whoever calls holds the model's row, so that no two changes of one model are beside each other.
"""
