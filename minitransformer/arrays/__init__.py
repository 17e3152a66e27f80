"""Arrays: which library they belong to, what the ops accept, masks, float16, and files of them."""
