"""Arrays: the library they belong to, the checks of arguments, masks, float16, and array files."""
