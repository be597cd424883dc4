// LauncherMembership: the rosters that tfhvdrun --elastic sends to this process over a descriptor
// that the process has inherited. Each message is a line:
//
//   roster GENERATION ADMITTED TOKEN NUMBER=ADDRESSES NUMBER=ADDRESSES ...   the members, by rank
//   waiting COUNT                                    number of processes that wait for admission
//   over WHY                                         no roster follows
//
// The end of the stream means `over`, too: the launcher is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "cc/base/fd.h"
#include "cc/base/status.h"
#include "cc/comm/membership.h"

namespace tfhvd {

// Parses a line; returns nullopt if it is malformed or does not name `member`.
std::optional<Roster> ParseRoster(const std::string& line, int member);

class LauncherMembership : public Membership {
 public:
  // Takes ownership of the descriptor. `member`: the number that the launcher gave to this process.
  LauncherMembership(int descriptor, int member);

  Status Next(int generation, std::chrono::nanoseconds most,
              std::optional<Roster>* roster) override;
  bool HasNext(int generation) override;
  int waiting() const override { return waiting_.load(std::memory_order_relaxed); }
  void Stop() override;

 private:
  void Read(int milliseconds);

  const Fd descriptor_;
  const int member_;
  const Fd stop_;  // an eventfd
  std::string unread_;
  std::optional<Roster> latest_;
  Status over_;
  std::atomic<int> waiting_{0};
};

}  // namespace tfhvd
