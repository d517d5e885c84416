"""The algorithms, a file for each: compositions of the estimate and the averaging."""
