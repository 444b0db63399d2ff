from setuptools import setup  # type: ignore[import-untyped]

setup(name="legacy", version="0.3", py_modules=["legacy"])
