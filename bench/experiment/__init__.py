"""Data sets × scenarios × methods × depths × orders × seeds, from a plan to tables and figures."""
