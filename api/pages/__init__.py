"""The pages for browsers, under `/ui`: rendered here, readable without JavaScript, decided in core."""
