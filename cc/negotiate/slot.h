// Slot: everything that the coordinator knows about one key: who has announced it (written by
// tally.h), and what was last agreed. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/flow/process_set_table.h"

namespace tfhvd {

struct Slot {
  enum class Announced : uint8_t { kNot, kById, kInFull };

  Key key;
  ProcessSetTable::Members members;  // of its process set

  // The tally.
  int count = 0;
  std::vector<Announced> announced;  // by rank of the job
  // Those that were announced in full and differ from each other, and which of them each rank
  // means: empty where there is one, as nearly always.
  std::vector<Request> requests;
  std::vector<uint32_t> request_of;  // by rank, valid where announced in full
  double since = 0.0;
  double last = 0.0;          // when it was announced last
  double ready_here = 0.0;    // when rank 0 announced it, whose coordinator this is
  bool tied = false;          // the last two were taken at one time: nobody knows who was last
  uint64_t known_before = 0;  // the last agreement that somebody who announced it had seen
  bool joins = false;         // some rank announced that it joins
  bool complete = false;      // everyone it needs has announced it; it waits for its decision
  size_t index = 0;           // where complete: in the tally's list of those that are
  int waited_for = -1;        // where complete: the rank that came last; -1: none, or not known
  bool reported = false;

  // What was last agreed; valid if id != kNoId.
  CacheId id = kNoId;
  Request request;  // the first member's
  Decision decision;
  uint64_t last_used = 0;
  uint64_t evicted_at = 0;      // the sequence number, or 0
  size_t evicted_index = 0;     // where it is not 0: in CacheIds' list of those
  Slot* idle_before = nullptr;  // Not owned; written by IdleSlots.
  Slot* idle_after = nullptr;   // likewise
  bool idle = false;            // likewise
};

inline bool HasAnnounced(const Slot& slot, int rank) {
  return slot.announced[static_cast<size_t>(rank)] != Slot::Announced::kNot;
}

// The first rank that has announced it. REQUIRES: some rank has.
int FirstAnnounced(const Slot& slot);

// Keeps the request that `rank` announces in full. Those of the slot move.
void KeepRequest(Slot* slot, int rank, Request request);

// The request that `rank` has announced in full. REQUIRES: it has done so.
const Request& RequestInFull(const Slot& slot, int rank);

// The request that `rank` means. REQUIRES: it has announced the slot.
Request RequestOf(const Slot& slot, int rank);

// "allreduce 'x' has waited 61 s: submitted by ranks [1], not by ranks [0, 2] (first on host a)".
// `joined`, by rank: these are not missed.
std::string WaitingText(const Slot& slot, double now, const std::vector<std::string>& hosts,
                        const std::vector<bool>& joined);

std::string SecondsText(double seconds);  // "1.5 s"

}  // namespace tfhvd
