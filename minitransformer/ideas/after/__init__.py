"""What came after the paper: a file or a folder for each idea. `minitransformer.ideas` has the names."""
