#include "cc/python/uncaught.h"

#include <Python.h>
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "cc/python/compat.h"

namespace tfhvd {
namespace {

std::atomic<int> uncaught_file{-1};

void AppendUncaught(int) {
  const int error = errno;
  const PyThreadState* state = PyGILState_GetThisThreadState();
  // The kernel may deliver the signal to another thread, whose exceptions do not end the program.
  const bool main = syscall(SYS_gettid) == getpid();
  const PyTypeObject* type = main && state != nullptr ? compat::UncaughtType(*state) : nullptr;
  if (type != nullptr) {
    char line[128] = "Uncaught: ";
    const size_t begin = std::strlen(line);
    std::strncpy(line + begin, type->tp_name, sizeof(line) - begin - 2);
    const size_t end = std::strlen(line);
    line[end] = '\n';
    // If this cannot be written, the reader still finds the stacks.
    const ssize_t written = write(uncaught_file.load(), line, end + 1);
    static_cast<void>(written);
  }
  errno = error;
}

}  // namespace

int AppendUncaughtAt(int signal, int file) {
  uncaught_file.store(file);
  struct sigaction action = {};
  action.sa_handler = &AppendUncaught;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  return sigaction(signal, &action, nullptr) == 0 ? 0 : errno;
}

}  // namespace tfhvd
