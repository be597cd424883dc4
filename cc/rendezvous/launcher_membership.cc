#include "cc/rendezvous/launcher_membership.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sstream>

namespace tfhvd {

std::optional<Roster> ParseRoster(const std::string& line, int member) {
  std::istringstream in(line);
  std::string word;
  Roster roster;
  if (!(in >> word >> roster.generation >> roster.admitted >> roster.token) || word != "roster") {
    return std::nullopt;
  }
  roster.rank = -1;
  while (in >> word) {
    const size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos) return std::nullopt;
    const int number = std::atoi(word.c_str());
    if (number == member) roster.rank = roster.size();
    roster.members.push_back(number);
    roster.addresses.push_back(word.substr(equals + 1));
  }
  if (roster.rank < 0) return std::nullopt;
  return roster;
}

LauncherMembership::LauncherMembership(int descriptor, int member)
    : descriptor_(descriptor), member_(member), stop_(eventfd(0, EFD_CLOEXEC)) {}

void LauncherMembership::Stop() {
  const uint64_t once = 1;
  (void)!write(stop_.get(), &once, sizeof once);
}

// Waits at most `milliseconds` for data and takes in the lines that have arrived.
void LauncherMembership::Read(int milliseconds) {
  pollfd ready[] = {{descriptor_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  if (poll(ready, 2, milliseconds) <= 0 || !over_.ok()) return;
  if (ready[1].revents != 0) {
    over_ = Status::Aborted("this process leaves the job");
    return;
  }
  char bytes[4096];
  const ssize_t got = read(descriptor_.get(), bytes, sizeof bytes);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    over_ = Status::Aborted("the launcher of the job is gone");
    return;
  }
  unread_.append(bytes, static_cast<size_t>(got));
  for (size_t end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
    const std::string line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    std::optional<Roster> roster = ParseRoster(line, member_);
    if (roster.has_value()) {
      latest_ = std::move(roster);
    } else if (line.rfind("waiting ", 0) == 0) {
      waiting_.store(std::atoi(line.c_str() + 8), std::memory_order_relaxed);
    } else if (line.rfind("over ", 0) == 0) {
      over_ = Status::Aborted(line.substr(5));
    }
  }
}

Status LauncherMembership::Next(int generation, std::chrono::nanoseconds most,
                                std::optional<Roster>* roster) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (over_.ok()) {
    if (latest_.has_value() && latest_->generation > generation) {
      *roster = latest_;
      return Status::Ok();
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Status::Ok();
    Read(static_cast<int>(std::min<int64_t>(left.count(), 1000000)));
  }
  return over_;
}

bool LauncherMembership::HasNext(int generation) {
  Read(0);
  return !over_.ok() || (latest_.has_value() && latest_->generation > generation);
}

}  // namespace tfhvd
