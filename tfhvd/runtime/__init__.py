"""This process in its job: native libraries, membership, process sets, hang monitor, stop."""
