"""The telemetry of this process: metrics, Prometheus, the timeline's file, log lines."""
