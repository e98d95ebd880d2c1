"""What a process that lives long tells Python's garbage collector."""

import gc


def freeze_imports() -> None:
    """Leave what is there now to no garbage collection.

    A full collection looks at everything that lives: with all that is imported it takes tens of milliseconds,
    in the middle of a request. And full collections wait until garbage is a quarter of what lives, which is
    many jobs' statements and sessions, for which the heap grows.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # the quarter is of what this one leaves
