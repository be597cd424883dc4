// The messages of the negotiation. Plain data; codec.h gives them bytes.
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
// do not run out.
using CacheId = uint64_t;
constexpr CacheId kNoId = 0;

// Collectives of a locked step that run together.
using Bucket = std::vector<CacheId>;

// Rank to coordinator: what has become ready since the last one.
struct Announcement {
  uint64_t seen = 0;           // the sequence number of the last Agreement that this rank has taken
  std::vector<CacheId> known;  // requests equal to those last agreed under these ids
  std::vector<Request> requests;  // requests in full
  std::vector<Key> withdrawn;     // requests announced before and taken back
  bool leaving = false;           // nothing follows: this rank ends
  std::string leave_reason;
  // The last locked step was unlocked here, after so many rounds; `ended_late`: a bucket did not
  // fill. Said with the first message after it, and no reason to send one.
  bool ended = false;
  int64_t ended_rounds = 0;
  bool ended_late = false;
  int64_t ended_step_ns = 0;  // how long its steps took here; 0: too few to say
  // For how long this rank has waited for others in the middle of a collective, and of which, for
  // people; 0: it does not.
  int64_t waited_ms = 0;
  std::string waits_in;

  bool empty() const {
    return known.empty() && requests.empty() && withdrawn.empty() && !leaving && waited_ms == 0;
  }
};

// Coordinator to rank. Every rank takes the same decisions in the same order.
struct Agreement {
  struct Item {
    CacheId id = kNoId;   // the id that the request has from now on
    bool repeat = false;  // as last agreed under `id`: `decision` is empty
    // For a rank that has joined, and did not ask for this: it takes part with zeros.
    bool placeholder = false;
    Request request;  // what the others asked for; only where placeholder
    Decision decision;
    int waited_for = -1;  // the rank that came last of all; -1: none, or not known
  };

  uint64_t sequence = 0;
  std::vector<Item> items;
  std::vector<CacheId> evicted;  // ids that are forgotten, after `items`
  std::vector<Key> withdrawn;    // of this rank: taken back before they were agreed
  bool confirm = false;        // answer at once, so that the coordinator knows `sequence` was seen
  bool everyone_left = false;  // the last message of the job
  // Not empty: from here on the ranks run these buckets round and round without a word, until one
  // of them ends it (schedule/vote_rounds.h). What was announced and not agreed is void.
  std::vector<Bucket> lock;
  int64_t lock_term = 0;     // with `lock`: after so many rounds the ranks end it; 0: they do not
  FusionLimits lock_fusion;  // with `lock`: of its buckets

  bool empty() const {
    return items.empty() && evicted.empty() && withdrawn.empty() && !confirm && !everyone_left &&
           lock.empty();
  }
};

// From a rank that cannot go on to all others: the job is lost, and why. Control planes know such a
// message by its first byte and take it to everyone that can be reached, also without rank 0.
struct Alarm {
  Status why;
};

}  // namespace tfhvd
