// Membership: which of the started processes are members of the job, as their number changes. Their
// launcher decides this (tfhvdrun --elastic), except when waiting processes are admitted: the job
// asks for an admission, and the launcher makes it.
//
// Each change is a generation. All members of a generation receive the same roster; a member may
// receive a later one before it has adopted this one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

struct Roster {
  int generation = 0;  // counts up from 0
  int admitted = 0;    // the last generation that admitted waiting processes; 0: none
  int rank = 0;        // this process's index among the members
  // By rank: the number that the launcher gave to the process, which it keeps.
  std::vector<int> members;
  // By rank: the addresses where it listens; and the secret of this generation.
  std::vector<std::string> addresses;
  std::string token;

  int size() const { return static_cast<int>(members.size()); }
};

class Membership {
 public:
  virtual ~Membership() = default;

  // Waits at most `most` for the latest roster after `generation`; nullopt if none has arrived. Not
  // ok: no roster will follow. One thread.
  virtual Status Next(int generation, std::chrono::nanoseconds most,
                      std::optional<Roster>* roster) = 0;

  // Returns whether a roster after `generation` has arrived. The same thread. Never blocks.
  virtual bool HasNext(int generation) = 0;

  // Returns how many processes wait for admission, by the last message. Any thread.
  virtual int waiting() const = 0;

  // Ends Next. Any thread.
  virtual void Stop() = 0;
};

}  // namespace tfhvd
