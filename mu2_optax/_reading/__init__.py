"""What a state tells: the average, the rate that was found, the error of the estimate."""
