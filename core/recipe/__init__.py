"""The recipe language, without torch and without a database: what a patch means, and what is refused.

A recipe is a JSON patch (RFC 7396): the model's, then the override of one batch. `resolve` makes it complete over
the catalogue, which is plain data that the learning code writes (`core/catalogue.py`). The API, the worker and the
experiments use it; the job process gets the complete recipe and validates it (`core/learn/recipe.py`).
"""
