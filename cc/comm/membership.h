// Membership: which of the processes that were started take part in the job, as their number
// changes. Whoever has started them says so (tfhvdrun --elastic); the job itself decides nothing,
// but when those that wait to join are let in: then it asks for that, and an admission follows.
//
// Each change is a generation. All members of one are told the same roster of it; a member may be
// told a later one before it has taken up this one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

struct Roster {
  int generation = 0;  // counts up from 0
  int admitted = 0;    // the last generation for which the job has let in who waited; 0: none
  int rank = 0;        // of this process: its index among the members
  // By rank: the number that a process was started with, which it keeps.
  std::vector<int> members;
  // By rank, where each listens, and the secret of this generation.
  std::vector<std::string> addresses;
  std::string token;

  int size() const { return static_cast<int>(members.size()); }
};

class Membership {
 public:
  virtual ~Membership() = default;

  // Waits, at most for so long, for the latest roster after `generation`; none has come: nullopt.
  // Not ok: there will be none any more. One thread.
  virtual Status Next(int generation, std::chrono::nanoseconds most,
                      std::optional<Roster>* roster) = 0;

  // Whether a roster after `generation` has come. The same thread. Never blocks.
  virtual bool HasNext(int generation) = 0;

  // How many processes wait to be let in, by what was received last. Any thread.
  virtual int waiting() const = 0;

  // Ends Next. Any thread.
  virtual void Stop() = 0;
};

}  // namespace tfhvd
