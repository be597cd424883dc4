"""What depends on versions and private parts of other packages, and on how their objects are made.

Nothing else asks for a version, and nothing else replaces a method of somebody else's class.
"""
