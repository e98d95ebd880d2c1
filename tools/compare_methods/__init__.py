"""`perennial compare-methods DIR`: Perennial's default beside the usual ways to update a classifier, on one split."""
