"""Programs for a release: build, version, notices, and a journey through what was installed."""
