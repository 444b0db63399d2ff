"""Hostile bytes for everything that reads them: ``make fuzz``, and the same targets as tests.

``targets`` has one function a reader, ``seeds`` real encodings for each, ``mutate`` spoils them.
Inputs that once broke a reader lie in ``found/<target>/`` and are tests from then on.
"""
