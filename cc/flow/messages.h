// The messages of the negotiation. Plain data; codec.h encodes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/flow/decision.h"
#include "cc/flow/request.h"
#include "cc/flow/step_settings.h"

namespace tfhvd {

// The number by which all ranks know a request that was agreed before. Never used twice: 64 bits
// suffice.
using CacheId = uint64_t;
constexpr CacheId kNoId = 0;

// Collectives of a locked step that run together.
using Bucket = std::vector<CacheId>;

// Rank to coordinator: the entries that have become ready since the last message.
struct Announcement {
  uint64_t seen = 0;           // the sequence number of the last Agreement that this rank has taken
  std::vector<CacheId> known;  // ids of requests equal to the last agreed ones
  std::vector<Request> requests;  // requests in full
  std::vector<Key> withdrawn;     // earlier requests that are taken back
  bool leaving = false;           // the last message: this rank ends
  std::string leave_reason;
  // The last locked step was unlocked here, after so many rounds; `ended_late`: a bucket did not
  // fill. Part of the next message; no reason to send one.
  bool ended = false;
  int64_t ended_rounds = 0;
  bool ended_late = false;
  int64_t ended_step_ns = 0;  // time per step here; 0: too few steps
  // How long this rank has waited for others in the middle of a collective, and in which one, for
  // people; 0: it does not wait.
  int64_t waited_ms = 0;
  std::string waits_in;

  bool empty() const {
    return known.empty() && requests.empty() && withdrawn.empty() && !leaving && waited_ms == 0;
  }
};

// Coordinator to rank. Every rank takes the same decisions in the same order.
struct Agreement {
  struct Item {
    CacheId id = kNoId;   // the id of the request from now on
    bool repeat = false;  // equal to the last decision under `id`: `decision` is empty
    // For a rank that has joined (hvd.join) and did not ask for this: it participates with zeros.
    bool placeholder = false;
    Request request;  // the request of the others; only for placeholders
    Decision decision;
    int waited_for = -1;  // the rank that was ready last; -1: none, or unknown
  };

  uint64_t sequence = 0;
  std::vector<Item> items;
  std::vector<CacheId> evicted;  // ids that become invalid after `items`
  std::vector<Key> withdrawn;    // requests of this rank, taken back before they were agreed
  bool confirm = false;  // answer at once, so that the coordinator knows that `sequence` was seen
  bool everyone_left = false;  // the last message of the job
  // Not empty: from here on the ranks repeat these buckets without messages, until one of them ends
  // it (schedule/vote_rounds.h). Announcements that were not agreed are void.
  std::vector<Bucket> lock;
  int64_t lock_term = 0;  // with `lock`: number of rounds until the ranks end it; 0: without limit
  FusionLimits lock_fusion;  // with `lock`: of its buckets

  bool empty() const {
    return items.empty() && evicted.empty() && withdrawn.empty() && !confirm && !everyone_left &&
           lock.empty();
  }
};

// Sent by a rank that cannot continue, to all others: the job has failed, and why. Control planes
// recognize the message by its first byte and send it to every rank that they can reach, also
// without rank 0.
struct Alarm {
  Status why;
};

}  // namespace tfhvd
