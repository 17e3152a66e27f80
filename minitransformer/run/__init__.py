"""Long runs: tasks from files to a folder and back, threads and ranks, resuming, fast forms, and what a model costs."""
