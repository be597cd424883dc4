// How survivors of a lost rank get even: each tells the others what it waits for and what it has,
// and what some have and others wait for is sent to all.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/elastic/ledger.h"

namespace tfhvd {

// Collective over all survivors. `fetch` copies the bytes of an outcome that this rank has to
// `data`; `take` gets each outcome that is sent, whether this rank waits for it or not. `copied`:
// how many were. Not ok: another rank is lost; what `take` has had is right all the same.
Status ShareOutcomes(const Position& own, Communicator* everyone,
                     const std::function<Status(const Turn& turn, char* data)>& fetch,
                     const std::function<void(const Outcome& outcome, const char* data)>& take,
                     int64_t* copied);

}  // namespace tfhvd
