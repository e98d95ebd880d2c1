"""Methods that penalise the displacement of weights that mattered before."""
