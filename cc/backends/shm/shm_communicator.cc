#include "cc/backends/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>

#include "cc/numeric/cpu.h"

namespace tfhvd {
namespace {

// The size of the memory before the exchanges, which begin on a page.
constexpr int64_t kNoteBytes = 4096;
static_assert(sizeof(AbortNote) <= kNoteBytes, "the note has its place");

}  // namespace

int64_t ShmCommunicator::SizeFor(int ranks, const ShmOptions& options) {
  return kNoteBytes + 2 * Exchange::SizeFor(ranks, options.slot_bytes);
}

std::vector<SharedMemory::Part> ShmCommunicator::PartsOf(int rank, int ranks,
                                                         const ShmOptions& options) {
  const int64_t head = Exchange::SlotsOf(0, ranks, options.slot_bytes);
  std::vector<SharedMemory::Part> parts;
  if (rank == 0) parts.push_back({0, kNoteBytes});
  for (const int64_t begin :
       {kNoteBytes, kNoteBytes + Exchange::SizeFor(ranks, options.slot_bytes)}) {
    if (rank == 0) parts.push_back({begin, head});
    parts.push_back(
        {begin + Exchange::SlotsOf(rank, ranks, options.slot_bytes), 2 * options.slot_bytes});
  }
  return parts;
}

ShmCommunicator::ShmCommunicator(std::shared_ptr<SharedMemory> memory, int rank, int ranks,
                                 const ShmOptions& options)
    : memory_(std::move(memory)),
      rank_(rank),
      ranks_(ranks),
      options_(options),
      note_(reinterpret_cast<AbortNote*>(memory_->data())),
      blocks_(memory_->data() + kNoteBytes, rank, ranks, options.slot_bytes, options.stores, this),
      all_reduce_(&blocks_, options_) {}

int ShmCommunicator::JobRank(int rank) const {
  return options_.job_ranks.empty() ? rank : options_.job_ranks[static_cast<size_t>(rank)];
}

// A rank that ends its wait ends it for all ranks: the others would wait for this rank.
Status ShmCommunicator::OnPeerWait(int rank, double waited_seconds) {
  Status status = Poll();
  if (status.ok()) {
    Wait wait;
    wait.call = "collective through shared memory";
    wait.ranks = {JobRank(rank)};
    wait.seconds = waited_seconds;
    status = OnWait(wait);
  }
  if (!status.ok()) Abort(status);
  return status;
}

void ShmCommunicator::Abort(const Status& why) {
  note_->Leave(why);
  blocks_.values.WakeEveryone();
  blocks_.results.WakeEveryone();
}

Status ShmCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                  const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Poll());
  return all_reduce_.Run(in, out, count, dtype, reduction);
}

Status ShmCommunicator::AllReduceSpans(const std::vector<Span>& spans, DType dtype,
                                       const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Poll());
  return all_reduce_.RunSpans(spans, dtype, reduction);
}

Status ShmCommunicator::AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) {
  TFHVD_RETURN_IF_ERROR(Poll());
  const char* from = static_cast<const char*>(in);
  std::vector<char*> to(ranks_);
  char* at = static_cast<char*>(out);
  for (int r = 0; r < ranks_; ++r) {
    to[r] = at;
    at += bytes[r];
  }
  // Input and output may be the same: then this rank's block moves within the buffer.
  if (bytes[rank_] > 0 && from != to[rank_]) {
    std::memmove(to[rank_], from, static_cast<size_t>(bytes[rank_]));
  }
  const int64_t most = *std::max_element(bytes.begin(), bytes.end());
  for (int64_t done = 0; done < most; done += blocks_.values.slot_bytes()) {
    const auto part = [&](int r) {
      return std::clamp<int64_t>(bytes[r] - done, 0, blocks_.values.slot_bytes());
    };
    const uint32_t round = blocks_.value_round++;
    TimedBlock block =
        blocks_.NewBlock(&gathered_, std::min(most - done, blocks_.values.slot_bytes()));
    char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(blocks_.values.Claim(round, &slot));
    {
      const TimedBlock::Work work(&block);
      blocks_.CopyIn(slot, to[rank_] + done, part(rank_), block.stores());
    }
    blocks_.values.Post(round);
    for (int i = 1; i < ranks_; ++i) {
      const int r = (rank_ + i) % ranks_;
      const char* theirs = nullptr;
      TFHVD_RETURN_IF_ERROR(blocks_.values.Read(round, r, &theirs));
      const TimedBlock::Work work(&block);
      if (part(r) > 0) std::memcpy(to[r] + done, theirs, static_cast<size_t>(part(r)));
    }
    blocks_.values.Done(round);
    block.End();
  }
  return Status::Ok();
}

Status ShmCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  TFHVD_RETURN_IF_ERROR(Poll());
  char* data = static_cast<char*>(buffer);
  for (int64_t done = 0; done < bytes; done += blocks_.values.slot_bytes()) {
    const int64_t part = std::min(blocks_.values.slot_bytes(), bytes - done);
    const uint32_t round = blocks_.value_round++;
    TimedBlock block = blocks_.NewBlock(&broadcast_, part);
    if (rank_ == root) {
      char* slot = nullptr;
      TFHVD_RETURN_IF_ERROR(blocks_.values.Claim(round, &slot));
      const TimedBlock::Work work(&block);
      blocks_.CopyIn(slot, data + done, part, block.stores());
    }
    blocks_.values.Post(round);
    if (rank_ != root) {
      const char* theirs = nullptr;
      TFHVD_RETURN_IF_ERROR(blocks_.values.Read(round, root, &theirs));
      const TimedBlock::Work work(&block);
      std::memcpy(data + done, theirs, static_cast<size_t>(part));
    }
    blocks_.values.Done(round);
    block.End();
  }
  return Status::Ok();
}

Status ShmCommunicator::ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts,
                                      DType dtype, const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Poll());
  const int64_t item = ItemSize(dtype);
  std::vector<const char*> begins(ranks_);  // of each rank's part of `in`
  const char* at = static_cast<const char*>(in);
  for (int r = 0; r < ranks_; ++r) {
    begins[r] = at;
    at += counts[r] * item;
  }
  const int64_t most = *std::max_element(counts.begin(), counts.end()) * item;
  const auto part = [&](int rank, int64_t at, int64_t lane) {
    return std::clamp<int64_t>(counts[rank] * item - at, 0, lane);
  };
  const auto fill = [&](int rank, int64_t at, int64_t lane, char* slot, StoreIn stores) {
    blocks_.CopyIn(slot, begins[rank] + at, part(rank, at, lane), stores);
  };
  const auto take = [&](int64_t at, int64_t lane) {
    const int64_t bytes = part(rank_, at, lane);
    if (bytes == 0) return;
    for (int r = 0; r < ranks_; ++r)
      blocks_.sources[r] = r == rank_ ? begins[r] + at : blocks_.from[r];
    ReduceRanks(static_cast<char*>(out) + at, blocks_.sources.data(), ranks_, bytes / item, dtype,
                reduction);
  };
  return ByLanes(most, fill, take);
}

// Moves blocks of up to `most` bytes from every rank to every other. A round carries a lane of
// bytes for each rank: `fill` copies into the slot, for each `rank`, the part of this rank's block
// that begins at `at`; then `take` finds in `blocks_.from` the others' lanes for this rank.
template <typename Fill, typename Take>
Status ShmCommunicator::ByLanes(int64_t most, const Fill& fill, const Take& take) {
  const int64_t lane = blocks_.values.slot_bytes() / ranks_ / Exchange::kLine * Exchange::kLine;
  for (int64_t at = 0; at < most; at += lane) {
    const uint32_t round = blocks_.value_round++;
    TimedBlock block = blocks_.NewBlock(&in_lanes_, std::min(lane, most - at) * ranks_);
    char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(blocks_.values.Claim(round, &slot));
    {
      const TimedBlock::Work work(&block);
      for (int r = 0; r < ranks_; ++r) {
        if (r != rank_) fill(r, at, lane, slot + r * lane, block.stores());
      }
    }
    blocks_.values.Post(round);
    for (int r = 0; r < ranks_; ++r) {
      TFHVD_RETURN_IF_ERROR(blocks_.values.Read(round, r, &blocks_.from[r]));
      blocks_.from[r] += rank_ * lane;
    }
    {
      const TimedBlock::Work work(&block);
      take(at, lane);
    }
    blocks_.values.Done(round);
    block.End();
  }
  return Status::Ok();
}

Status ShmCommunicator::AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                                 const std::vector<int64_t>& recv_bytes) {
  TFHVD_RETURN_IF_ERROR(Poll());
  std::vector<const char*> from(ranks_);
  std::vector<char*> to(ranks_);
  const char* read = static_cast<const char*>(in);
  char* write = static_cast<char*>(out);
  for (int r = 0; r < ranks_; ++r) {
    from[r] = read;
    to[r] = write;
    read += send_bytes[r];
    write += recv_bytes[r];
  }
  if (send_bytes[rank_] > 0)
    std::memcpy(to[rank_], from[rank_], static_cast<size_t>(send_bytes[rank_]));

  // No rank knows the sizes of all others, so all ranks take as many rounds as the largest block
  // needs: they agree on that first.
  int64_t most = 0;
  for (int r = 0; r < ranks_; ++r) most = std::max({most, send_bytes[r], recv_bytes[r]});
  Reduction max;
  max.op = ReduceOp::kMax;
  TFHVD_RETURN_IF_ERROR(AllReduce(&most, &most, 1, DType::kInt64, max));

  const auto fill = [&](int rank, int64_t at, int64_t lane, char* slot, StoreIn stores) {
    blocks_.CopyIn(slot, from[rank] + at, std::clamp<int64_t>(send_bytes[rank] - at, 0, lane),
                   stores);
  };
  const auto take = [&](int64_t at, int64_t lane) {
    // Each rank begins with its neighbour, so that the ranks do not all read the same memory.
    for (int i = 1; i < ranks_; ++i) {
      const int r = (rank_ + i) % ranks_;
      const int64_t bytes = std::clamp<int64_t>(recv_bytes[r] - at, 0, lane);
      if (bytes > 0) std::memcpy(to[r] + at, blocks_.from[r], static_cast<size_t>(bytes));
    }
  };
  return ByLanes(most, fill, take);
}

Status ShmCommunicator::Barrier() {
  TFHVD_RETURN_IF_ERROR(Poll());
  const uint32_t round = blocks_.value_round++;
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(blocks_.values.Claim(round, &slot));
  blocks_.values.Post(round);
  for (int r = 0; r < ranks_; ++r) {
    const char* ignored = nullptr;
    TFHVD_RETURN_IF_ERROR(blocks_.values.Read(round, r, &ignored));
  }
  blocks_.values.Done(round);
  return Status::Ok();
}

}  // namespace tfhvd
