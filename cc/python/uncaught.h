// Says of a process that is looked at from outside which exception its main thread is leaving its
// program with. Stacks do not show that: the thread still stands at the line that raised, for as
// long as C code holds it that frees what the frames had (TensorFlow waits for the threads of a
// dataset).
#pragma once

namespace tfhvd {

// From now on a line "Uncaught: TYPE" is appended to the file whenever the signal comes and there
// is one such exception. Installs a handler of its own, which calls nothing but write(): it neither
// needs the interpreter's lock nor waits. The file stays the caller's and must stay open; one pair
// for a process. Returns 0, or what errno says.
int AppendUncaughtAt(int signal, int file);

}  // namespace tfhvd
