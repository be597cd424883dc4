// How the members of a new generation get even: each tells the others what it waits for and what it
// has, and what some have and others wait for is sent to all. Who is new learns what was counted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/elastic/ledger.h"

namespace tfhvd {

// Collective over all members. `fetch` copies the bytes of an outcome that this rank has to
// `data`; `take` gets each outcome that is sent, whether this rank waits for it or not. `copied`:
// how many were. `some_are_new`: whether a member was not in the job before. Not ok: another rank
// is lost; what `take` has had is right all the same.
Status ShareOutcomes(const Position& own, Communicator* everyone,
                     const std::function<Status(const Turn& turn, char* data)>& fetch,
                     const std::function<void(const Outcome& outcome, const char* data)>& take,
                     int64_t* copied, bool* some_are_new);

// Collective over all members. `own`: what this rank has counted; "" where it is new. `counts`:
// what those that are not new have counted. FailedPrecondition: all are.
Status ShareCounts(const std::string& own, Communicator* everyone, std::string* counts);

}  // namespace tfhvd
