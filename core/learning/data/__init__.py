"""Images of a task as batches: data sets, augmentation, sampling, cached features."""
