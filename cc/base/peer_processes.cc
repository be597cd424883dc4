#include "cc/base/peer_processes.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

namespace tfhvd {
namespace {

// The number of pidfd_open on every architecture but Alpha; older C libraries do not name it.
constexpr long kPidfdOpen = 434;

// Checks without a handle (before Linux 5.3, or if a sandbox forbids handles): this knows less.
bool HasEnded(int pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return false;
  char state = '?';
  // "PID (NAME) STATE ...": a name has no newline, and at most 64 characters.
  const int found = std::fscanf(file, "%*d (%*64[^)]) %c", &state);
  std::fclose(file);
  return found == 1 && (state == 'Z' || state == 'X');
}

}  // namespace

PeerProcesses::PeerProcesses(std::vector<int> pids) : pids_(std::move(pids)) {
  for (const int pid : pids_) {
    handles_.emplace_back(static_cast<int>(syscall(kPidfdOpen, pid, 0)));
  }
}

int PeerProcesses::FirstEnded(const std::function<bool(int)>& counts) const {
  std::vector<pollfd> asked;
  for (const Fd& handle : handles_) asked.push_back({handle.get(), POLLIN, 0});
  if (!asked.empty() && poll(asked.data(), asked.size(), 0) < 0) return -1;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (counts != nullptr && !counts(static_cast<int>(i))) continue;
    if (handles_[i].valid() ? (asked[i].revents & POLLIN) != 0 : HasEnded(pids_[i])) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace tfhvd
