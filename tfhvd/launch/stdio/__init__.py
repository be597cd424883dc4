"""The ranks' input and output: lines, files, the debugger's terminal."""
