"""Settings of Python's garbage collector for long-lived processes."""

import gc


def exclude_existing_objects_from_gc() -> None:
    """Exclude all objects that exist now from later garbage collections.

    A full collection visits every live object. With all imported modules that takes tens of
    milliseconds, in the middle of a request. Full collections also wait until garbage is a quarter
    of the live objects, which is many jobs' statements and sessions, so that the heap grows.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # collect again, so that the quarter refers to the objects that remain now
