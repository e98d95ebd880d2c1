"""The job of an edit: its rows, its edited data, and the processes that learn tasks again."""
