"""What depends on versions and private parts of other packages, and on how their objects are made.

No other folder asks for a version, or replaces a method of another package's class.
"""
