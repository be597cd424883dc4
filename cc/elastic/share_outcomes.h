// How the members of a new generation get even: each tells the others what it waits for and what it
// has, and what some have and others wait for is sent to all. Who is new learns what was counted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/failpoints.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/elastic/ledger.h"

namespace tfhvd {

// What all have told each other.
struct Shared {
  int64_t copied = 0;         // outcomes
  bool some_are_new = false;  // a member was not in the job before
  bool go_back = false;       // all go back to what they have kept, and nothing is copied
};

// Collective over all members. `catch_up` is told how many barriers some rank has passed, and
// called first. `fetch` copies the bytes of an outcome that this rank has to
// `data`; `take` gets each outcome that is sent, whether this rank waits for it or not. Not ok:
// another rank is lost; what `take` has had is right all the same.
Status ShareOutcomes(const Position& own, Communicator* everyone,
                     const std::function<void(int64_t barriers)>& catch_up,
                     const std::function<Status(const Turn& turn, char* data)>& fetch,
                     const std::function<void(const Outcome& outcome, const char* data)>& take,
                     const Failpoints& failpoints, Shared* shared);

// Collective over all members. `own`: what this rank has counted; "" where it is new. `counts`:
// what those that are not new have counted; "" where all are.
Status ShareCounts(const std::string& own, Communicator* everyone, std::string* counts);

}  // namespace tfhvd
