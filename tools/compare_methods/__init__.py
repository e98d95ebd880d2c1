"""`perennial compare-methods DIR`: Perennial's default and usual updates of a classifier compared.

All are measured on one split.
"""
