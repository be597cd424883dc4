"""All code that depends on the versions, the private parts or the objects of other packages.

No other folder asks for a version, or replaces a method of another package's class.
"""
