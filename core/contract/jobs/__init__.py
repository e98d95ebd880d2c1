"""Documents between the worker and the processes of a job."""
