"""The program that draws the sample pictures of the demo, which the package brings along."""
