#include "cc/backends/shm/shm_control_plane.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "cc/backends/shm/futex.h"
#include "cc/numeric/cpu.h"

namespace tfhvd {
namespace {

constexpr uint64_t kRingBytes = 32 * 1024;

// About 30 microseconds: the answer to a message usually comes within that time.
constexpr int kSpins = 500;

using Length = uint32_t;

}  // namespace

struct alignas(64) ShmControlPlane::Doorbell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> asleep;

  void Ring() {
    rings.fetch_add(1, std::memory_order_seq_cst);
    if (asleep.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&rings);
  }
};

// Bytes from one rank to another: one writes, one reads. Positions count all bytes so far.
struct ShmControlPlane::RingBuffer {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> writer_waits;  // for space
  alignas(64) char bytes[kRingBytes];
};

// A rank's word to vote with.
struct alignas(64) ShmControlPlane::Ballot {
  std::atomic<uint64_t> word;
};

int64_t ShmControlPlane::SizeFor(int ranks) {
  return ranks * static_cast<int64_t>(sizeof(Doorbell) + 2 * sizeof(RingBuffer) + sizeof(Ballot)) +
         static_cast<int64_t>(sizeof(Ballot));
}

ShmControlPlane::ShmControlPlane(SharedMemory memory, int rank, int ranks)
    : memory_(std::move(memory)), rank_(rank), ranks_(ranks), peers_(ranks) {
  auto* bells = reinterpret_cast<Doorbell*>(memory_.data());
  auto* up = reinterpret_cast<RingBuffer*>(memory_.data() + ranks * sizeof(Doorbell));
  auto* down = up + ranks;
  bell_ = &bells[rank];
  ballots_ = reinterpret_cast<Ballot*>(down + ranks);
  for (int r = 0; r < ranks; ++r) {
    peers_[r].bell = &bells[r];
    peers_[r].out = rank == 0 ? &down[r] : &up[rank];
    peers_[r].in = rank == 0 ? &up[r] : &down[rank];
  }
}

Status ShmControlPlane::Send(int to, std::string bytes) {
  const Length length = static_cast<Length>(bytes.size());
  bytes.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  peers_[to].outbox.push_back(std::move(bytes));
  Push(&peers_[to]);
  return Status::Ok();
}

// Writes as much as there is space for.
void ShmControlPlane::Push(Peer* peer) {
  RingBuffer* ring = peer->out;
  bool rang = false;
  while (!peer->outbox.empty()) {
    const uint64_t at = ring->written.load(std::memory_order_relaxed);
    uint64_t space = kRingBytes - (at - ring->read.load(std::memory_order_acquire));
    if (space == 0) {
      // Checks again after writer_waits is set: the reader may have made space in between.
      ring->writer_waits.store(1, std::memory_order_seq_cst);
      space = kRingBytes - (at - ring->read.load(std::memory_order_seq_cst));
      if (space == 0) break;
    }
    const std::string& message = peer->outbox.front();
    const uint64_t offset = at % kRingBytes;
    const uint64_t n =
        std::min<uint64_t>({space, message.size() - peer->written, kRingBytes - offset});
    std::memcpy(ring->bytes + offset, message.data() + peer->written, n);
    ring->written.store(at + n, std::memory_order_release);
    rang = true;
    peer->written += n;
    if (peer->written < message.size()) continue;
    peer->outbox.pop_front();
    peer->written = 0;
  }
  if (rang) peer->bell->Ring();
}

// Reads the bytes that are there; returns true when a message is complete.
bool ShmControlPlane::Pull(Peer* peer, std::string* message) {
  RingBuffer* ring = peer->in;
  while (true) {
    const uint64_t at = ring->read.load(std::memory_order_relaxed);
    uint64_t wanted = sizeof(Length);
    if (peer->inbox.size() >= sizeof(Length)) {
      Length length;
      std::memcpy(&length, peer->inbox.data(), sizeof length);
      wanted += length;
    }
    if (peer->inbox.size() >= sizeof(Length) && peer->inbox.size() == wanted) {
      *message = peer->inbox.substr(sizeof(Length));
      peer->inbox.clear();
      return true;
    }
    const uint64_t there = ring->written.load(std::memory_order_acquire) - at;
    if (there == 0) return false;
    const uint64_t offset = at % kRingBytes;
    const uint64_t n =
        std::min<uint64_t>({there, wanted - peer->inbox.size(), kRingBytes - offset});
    peer->inbox.append(ring->bytes + offset, n);
    ring->read.store(at + n, std::memory_order_seq_cst);
    if (ring->writer_waits.load(std::memory_order_seq_cst) != 0) {
      ring->writer_waits.store(0, std::memory_order_seq_cst);
      peer->bell->Ring();
    }
  }
}

Status ShmControlPlane::Receive(std::optional<Message>* message) {
  message->reset();
  const int first = rank_ == 0 ? 1 : 0;
  const int count = rank_ == 0 ? ranks_ - 1 : 1;
  for (int i = 0; i < count; ++i) {
    const int r = first + (next_ + i) % count;
    Push(&peers_[r]);
    std::string bytes;
    if (!Pull(&peers_[r], &bytes)) continue;
    next_ = (next_ + i + 1) % count;
    *message = Message{r, std::move(bytes)};
    return Status::Ok();
  }
  return Status::Ok();
}

bool ShmControlPlane::Flushed() {
  bool flushed = true;
  for (Peer& peer : peers_) {
    if (peer.outbox.empty()) continue;
    Push(&peer);
    flushed = flushed && peer.outbox.empty();
  }
  return flushed;
}

void ShmControlPlane::Wait(std::chrono::nanoseconds timeout, bool expecting) {
  const auto rung = [this] { return bell_->rings.load(std::memory_order_seq_cst) != answered_; };
  for (int i = 0; expecting && i < kSpins && !rung(); ++i) CpuRelax();
  if (!rung()) {
    bell_->asleep.store(1, std::memory_order_seq_cst);
    if (!rung()) FutexWait(&bell_->rings, answered_, timeout);
    bell_->asleep.store(0, std::memory_order_seq_cst);
  }
  answered_ = bell_->rings.load(std::memory_order_seq_cst);
}

void ShmControlPlane::Wake() { bell_->Ring(); }

void ShmControlPlane::BeginInline() {
  bell_->asleep.store(0, std::memory_order_seq_cst);
  seen_inline_ = bell_->rings.load(std::memory_order_seq_cst);
}

// Marks this rank as asleep, even if it is not: then a ring costs an unnecessary system call.
void ShmControlPlane::EndInline() {
  bell_->asleep.store(1, std::memory_order_seq_cst);
  if (bell_->rings.load(std::memory_order_seq_cst) != seen_inline_) FutexWakeAll(&bell_->rings);
}

// Sequentially consistent, like Word: of two ranks that vote at once, at least one sees both votes.
void ShmControlPlane::Cast(uint64_t word) {
  ballots_[rank_].word.store(word, std::memory_order_seq_cst);
}

uint64_t ShmControlPlane::Word(int index) const {
  return ballots_[index].word.load(std::memory_order_seq_cst);
}

void ShmControlPlane::Note(uint64_t word) {
  ballots_[ranks_].word.store(word, std::memory_order_seq_cst);
}

uint64_t ShmControlPlane::noted() const {
  return ballots_[ranks_].word.load(std::memory_order_seq_cst);
}

void ShmControlPlane::WakeOne(int index) { peers_[index].bell->Ring(); }

void ShmControlPlane::WakeOthers() {
  for (int r = 0; r < ranks_; ++r) {
    if (r != rank_) peers_[r].bell->Ring();
  }
}

}  // namespace tfhvd
