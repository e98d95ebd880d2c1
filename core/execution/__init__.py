"""A claimed job from its preparation to its end: kinds of jobs, validation, progress, snapshots."""
