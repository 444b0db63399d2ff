"""A module that is one file, and the program of the project."""

import sys


def main() -> None:
    """Say that the console script runs."""
    sys.stdout.write("the script runs\n")
