"""What the steps do: a file for each subject, a function for each step."""
