"""What came before the paper: recurrence, alignment, convolution. `minitransformer.ideas` has the names."""
