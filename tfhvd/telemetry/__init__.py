"""What this process tells of its job: metrics, Prometheus, the timeline's file, log lines."""
