"""Work of the steps: a file for each subject, a function for each step."""
