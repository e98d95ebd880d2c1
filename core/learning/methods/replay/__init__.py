"""Methods that train on stored examples of earlier tasks."""
