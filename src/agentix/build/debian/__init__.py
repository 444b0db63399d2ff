"""Debian's packages: which ones there are, which ones a program needs, and who vouches for them."""
