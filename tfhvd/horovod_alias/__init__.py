"""tfhvd in the place of Horovod: what `import tfhvd.as_horovod` and `--as-horovod` put there."""
