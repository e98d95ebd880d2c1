"""The job process: training loop, schedule, control, and what a run leaves."""
