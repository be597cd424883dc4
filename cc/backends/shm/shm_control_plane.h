// ShmControlPlane: the negotiation's messages between ranks of one host. Each rank has a ring
// buffer to rank 0 and one from it, and a doorbell that rings when bytes arrive, or when a full
// ring has space again. No rank polls: a waiting rank sleeps in the kernel. The ranks vote with one
// word each.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cc/backends/shm/shared_memory.h"
#include "cc/comm/communicator.h"
#include "cc/comm/control_plane.h"

namespace tfhvd {

// Makes a control plane over the ranks of `host`, which must all be on one host. Collective. All
// ranks get a control plane, or all get the same kind of error (kUnavailable if memory cannot be
// shared).
Status MakeShmControlPlane(Communicator* host, std::unique_ptr<ControlPlane>* out);

class ShmControlPlane : public ControlPlane, private VoteBoard {
 public:
  static int64_t SizeFor(int ranks);

  // `memory` is zeroed at first and mapped by all ranks.
  ShmControlPlane(SharedMemory memory, int rank, int ranks);

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }

  Status Send(int to, std::string bytes) override;
  Status Receive(std::optional<Message>* message) override;
  bool Flushed() override;
  void Wait(std::chrono::nanoseconds timeout, bool expecting) override;
  void Wake() override;
  bool can_run_inline() const override { return true; }
  void BeginInline() override;
  void EndInline() override;
  VoteBoard* votes() override { return this; }

 private:
  struct Doorbell;
  struct RingBuffer;
  struct Ballot;

  int words() const override { return ranks_; }
  int own() const override { return rank_; }
  void Cast(uint64_t word) override;
  uint64_t Word(int index) const override;
  std::vector<int> RanksOf(int index) const override { return {index}; }
  void WakeOthers() override;
  void WakeOne(int index) override;
  void Note(uint64_t word) override;
  uint64_t noted() const override;

  // The unwritten messages to one peer, and the part of an unfinished message from it.
  struct Peer {
    RingBuffer* out = nullptr;  // in shared memory
    RingBuffer* in = nullptr;
    Doorbell* bell = nullptr;
    std::deque<std::string> outbox;  // each begins with its length
    size_t written = 0;              // of the first message of outbox
    std::string inbox;
  };

  void Push(Peer* peer);
  bool Pull(Peer* peer, std::string* message);

  SharedMemory memory_;
  const int rank_;
  const int ranks_;
  Doorbell* bell_;            // this rank's, in shared memory
  Ballot* ballots_;           // by rank, then that of Note; in shared memory
  uint32_t answered_ = 0;     // rings of the bell that a Wait has answered
  uint32_t seen_inline_ = 0;  // rings that inline execution has answered
  std::vector<Peer> peers_;   // by rank; only rank 0 has more than one in use
  int next_ = 0;              // the first peer that Receive asks, in turn, so that none waits long
};

}  // namespace tfhvd
