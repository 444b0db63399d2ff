"""A package mirror that does all that servers do, and what tests of fetching say about it."""
