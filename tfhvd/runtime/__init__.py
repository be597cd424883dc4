"""This process in its job: the native libraries, joining and leaving, its place, process sets."""
