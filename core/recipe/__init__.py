"""The recipe language: the meaning of a recipe patch and the checks that it must pass.

A recipe is a JSON patch (RFC 7396): the model's, then the override of one batch. `resolve`
completes it from the catalogue, which is plain data that the learning code writes
(`core/recipe/catalogue.py`). The API, the worker and the experiments use this package, which needs neither
torch nor a database. The job process receives the complete recipe and validates it
(`core/learning/recipe.py`).
"""
