"""Parsers of the datasets' file formats: nothing in a file is executed, and no file can ask for more than it is due.

Each takes a `reader.Reader` and what is expected of the file, and gives arrays or a `QuatcapsError`.
"""
