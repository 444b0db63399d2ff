"""A package called like what builders leave, and none of it."""
