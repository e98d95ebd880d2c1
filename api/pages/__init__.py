"""HTML pages under `/ui`: rendered here, readable without JavaScript, with all decisions in
core.
"""
