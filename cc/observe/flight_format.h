// The flight record's memory, as other processes read it: a FlightHeader, then `slots` FlightSlots,
// then text. tfhvd/hang/flight_record.py reads it; increment kFlightVersion with any change.
//
// Numbers have the machine's byte order; times are nanoseconds of CLOCK_MONOTONIC, which all
// processes of a host share.
#pragma once

#include <atomic>
#include <cstdint>

namespace tfhvd {

constexpr char kFlightMagic[8] = {'t', 'f', 'h', 'v', 'd', 'r', 'e', 'c'};
constexpr uint32_t kFlightVersion = 3;

struct FlightHeader {
  char magic[8];  // written last
  uint32_t version;
  uint32_t header_bytes;
  uint32_t slots;
  uint32_t slot_bytes;
  uint32_t text_bytes;
  int32_t rank;
  int32_t size;
  int32_t pid;
  int32_t leader;  // the lowest pid among the job's on this host; 0: unknown
  uint32_t reserved;
  int64_t began;       // start of the engine
  int64_t began_unix;  // nanoseconds since 1970
  // Written by submitting threads and by the engine's thread: each writes separate cache lines.
  alignas(64) std::atomic<uint64_t> submitted;  // number of entries; the id of the last one
  std::atomic<int64_t> submitted_at;            // time of the last one; 0: none
  std::atomic<int64_t> epoch;                   // of the training, from 1; 0: unknown
  std::atomic<int64_t> step;                    // steps that are done in the epoch
  std::atomic<int64_t> tells_until;        // until then its own monitor can say why the job hangs
  alignas(64) std::atomic<uint64_t> done;  // number of entries that are done
  std::atomic<int64_t> done_at;
  alignas(64) char host[64];  // ends with a zero
};
static_assert(sizeof(FlightHeader) == 256, "the size of the header is part of the format");

enum class FlightState : uint8_t { kPending = 0, kOk = 1, kFailed = 2 };

// One entry: entry `id` is in slot id % slots until a later entry takes the slot.
struct FlightSlot {
  std::atomic<uint64_t> id;  // 0: none, or the slot is being written
  std::atomic<int64_t> submitted;
  std::atomic<int64_t> agreed;  // 0: not yet; so below
  std::atomic<int64_t> began;   // start of the execution
  std::atomic<int64_t> ended;
  std::atomic<int64_t> bytes;   // of all tensors on this rank
  std::atomic<uint32_t> name;   // offset in the text: the key's name and, after a zero, the origin
  std::atomic<uint32_t> phase;  // the last phase; 0: none
  std::atomic<int32_t> waited_for;  // a rank; -1: none or unknown; -2: several
  std::atomic<uint16_t> tensors;
  std::atomic<uint8_t> kind;  // a Collective
  std::atomic<FlightState> state;
};
static_assert(sizeof(FlightSlot) == 64, "a slot is a line of the cache");

}  // namespace tfhvd
