"""From a job's result to a version: parts, manifest, measurements, warnings."""
