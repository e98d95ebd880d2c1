"""Reports about a batch: by names and sizes, and by its images."""
