"""What is learned: parameters and a batch in, loss terms and metrics out."""
