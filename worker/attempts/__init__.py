"""One attempt at a job: its process, supervision, reports and folders."""
