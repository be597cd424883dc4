// Uncaught: tells an observer of the process with which exception its main thread is leaving the
// program. Stacks do not show that: the thread remains at the line that raised while C code frees
// the contents of the frames (TensorFlow waits for the threads of a dataset).
#pragma once

namespace tfhvd {

// From now on each signal appends a line "Uncaught: TYPE" to the file, if there is such an
// exception. Installs a signal handler that calls nothing but write(), so it neither needs the
// interpreter's lock nor waits. The caller owns the file, which must stay open; only one pair for a
// process. Returns 0, or errno.
int AppendUncaughtAt(int signal, int file);

}  // namespace tfhvd
