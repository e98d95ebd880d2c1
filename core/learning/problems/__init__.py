"""Problems that a model can learn: the only code that knows what a label is."""
