"""What a long run needs around the loop: threads, ranks, precisions, text on the disk, a folder to resume from."""
