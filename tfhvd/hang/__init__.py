"""The hang detector: takes snapshots of ranks from outside, and names the cause of a hang.

classifier.py decides on the cause; causes.py and report_text.py have the words.
"""
