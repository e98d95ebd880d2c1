"""Settings of hypothesis for the tests of `core`: no deadline, and the same cases in each run."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
