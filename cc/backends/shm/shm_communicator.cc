#include "cc/backends/shm/shm_communicator.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cc/base/cpu.h"

namespace tfhvd {
namespace {

// One exchange in which everybody reduces everything is faster up to this many bytes of all ranks
// together; and for two ranks always: each would read half of the other's values and half of its
// results, and now reads the values whole.
constexpr int64_t kSmallBytes = 256 * 1024;
constexpr int kFewRanks = 2;

// Parts of a block begin on a cache line.
constexpr int64_t kLine = 64;

// A reduced part is passed on while it is still in the nearest cache.
constexpr int64_t kReduceStep = 16 * 1024;

int64_t PartBegin(int64_t bytes, int ranks, int rank) {
  const int64_t even = (bytes + ranks - 1) / ranks;
  const int64_t rounded = (even + kLine - 1) / kLine * kLine;
  return std::min(bytes, rounded * rank);
}

// Goes through spans in parts that lie in one of them each.
class Walk {
 public:
  explicit Walk(const Span* spans) : span_(spans) {}

  // The next part, of at most `most` bytes. REQUIRES: there are more; most > 0.
  Span Next(int64_t most) {
    for (; at_ == span_->bytes; ++span_) at_ = 0;
    const Span part{static_cast<const char*>(span_->in) + at_, static_cast<char*>(span_->out) + at_,
                    std::min(most, span_->bytes - at_)};
    at_ += part.bytes;
    return part;
  }

 private:
  const Span* span_;  // Not owned.
  int64_t at_ = 0;    // in this span
};

}  // namespace

// A block of a reduction: `bytes` bytes at `in` and `out`, in turn `values` and later `results`.
struct ShmCommunicator::Block {
  const char* in;
  char* out;
  int64_t bytes;
  uint32_t values;
  uint32_t results;
};

int64_t ShmCommunicator::SizeFor(int ranks, const ShmOptions& options) {
  return 2 * Exchange::SizeFor(ranks, options.slot_bytes);
}

ShmCommunicator::ShmCommunicator(std::shared_ptr<SharedMemory> memory, int rank, int ranks,
                                 std::vector<int> pids, const ShmOptions& options)
    : memory_(std::move(memory)),
      rank_(rank),
      ranks_(ranks),
      pids_(std::move(pids)),
      options_(options),
      from_(ranks),
      sources_(ranks),
      values_(memory_->data(), rank, ranks, options.slot_bytes, this),
      results_(memory_->data() + Exchange::SizeFor(ranks, options.slot_bytes), rank, ranks,
               options.slot_bytes, this) {}

Status ShmCommunicator::Health() {
  if (!aborted_.load(std::memory_order_acquire)) return Status::Ok();
  MutexLock lock(&abort_mutex_);
  return abort_reason_;
}

std::string ShmCommunicator::Named(int rank) const {
  const std::vector<int>& ranks = options_.job_ranks;
  return "rank " + std::to_string(ranks.empty() ? rank : ranks[static_cast<size_t>(rank)]);
}

Status ShmCommunicator::StillWaiting(int rank, double waited_seconds) {
  TFHVD_RETURN_IF_ERROR(Health());
  TFHVD_RETURN_IF_ERROR(Alive(rank));
  if (options_.stall_check_time > 0 && waited_seconds >= options_.stall_check_time &&
      !stall_reported_) {
    stall_reported_ = true;
    options_.log.Warning(Named(rank_) + " has waited " +
                         std::to_string(static_cast<int>(waited_seconds)) + " s for " +
                         Named(rank) + " in the middle of a collective" +
                         (pids_.empty() ? "" : " (process " + std::to_string(pids_[rank]) + ")") +
                         ". It may be stopped (kill -CONT) or swapped out.");
  }
  return Status::Ok();
}

Status ShmCommunicator::Alive(int rank) const {
  if (pids_.empty() || kill(pids_[static_cast<size_t>(rank)], 0) == 0 || errno != ESRCH) {
    return Status::Ok();
  }
  return Status::Aborted(Named(rank) + " (process " +
                         std::to_string(pids_[static_cast<size_t>(rank)]) +
                         " on this host) has died. Its own output, or dmesg, may say why.");
}

Status ShmCommunicator::Poll() {
  TFHVD_RETURN_IF_ERROR(Health());
  for (int r = 0; r < ranks_; ++r) TFHVD_RETURN_IF_ERROR(Alive(r));
  return Status::Ok();
}

void ShmCommunicator::Abort(const Status& why) {
  MutexLock lock(&abort_mutex_);
  if (abort_reason_.ok()) abort_reason_ = why;
  aborted_.store(true, std::memory_order_release);
}

void ShmCommunicator::CopyIn(char* slot, const char* from, int64_t bytes) const {
  if (options_.past_caches) return StreamCopy(slot, from, bytes);
  if (bytes > 0) std::memcpy(slot, from, static_cast<size_t>(bytes));
}

Status ShmCommunicator::PostValues(const Block& block) {
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(values_.Claim(block.values, &slot));
  // All but this rank's own part, which nobody else reads.
  const int64_t begin = PartBegin(block.bytes, ranks_, rank_);
  const int64_t end = PartBegin(block.bytes, ranks_, rank_ + 1);
  CopyIn(slot, block.in, begin);
  CopyIn(slot + end, block.in + end, block.bytes - end);
  values_.Post(block.values);
  return Status::Ok();
}

Status ShmCommunicator::ReducePart(const Block& block, DType dtype, const Reduction& reduction) {
  const int64_t begin = PartBegin(block.bytes, ranks_, rank_);
  const int64_t end = PartBegin(block.bytes, ranks_, rank_ + 1);
  for (int r = 0; r < ranks_; ++r) TFHVD_RETURN_IF_ERROR(values_.Read(block.values, r, &from_[r]));
  from_[rank_] = block.in;
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(results_.Claim(block.results, &slot));
  for (int64_t at = begin; at < end; at += kReduceStep) {
    const int64_t bytes = std::min(kReduceStep, end - at);
    for (int r = 0; r < ranks_; ++r) sources_[r] = from_[r] + at;
    ReduceRanks(block.out + at, sources_.data(), ranks_, bytes / ItemSize(dtype), dtype, reduction);
    CopyIn(slot + (at - begin), block.out + at, bytes);
  }
  values_.Done(block.values);
  results_.Post(block.results);
  return Status::Ok();
}

Status ShmCommunicator::CopyResults(const Block& block) {
  // Each rank begins with its neighbour, so that they do not all read the same memory.
  for (int i = 1; i < ranks_; ++i) {
    const int r = (rank_ + i) % ranks_;
    const char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(results_.Read(block.results, r, &slot));
    const int64_t begin = PartBegin(block.bytes, ranks_, r);
    const int64_t end = PartBegin(block.bytes, ranks_, r + 1);
    std::memcpy(block.out + begin, slot, static_cast<size_t>(end - begin));
  }
  results_.Done(block.results);
  return Status::Ok();
}

// One exchange in which everybody reduces everything.
bool ShmCommunicator::IsDirect(int64_t bytes) const {
  return ranks_ <= kFewRanks || bytes * ranks_ <= kSmallBytes;
}

// Every rank posts all its values and reduces everybody's; the next block is posted before this one
// is waited for.
Status ShmCommunicator::DirectAllReduce(const Span* spans, int64_t bytes, DType dtype,
                                        const Reduction& reduction, ResultIn place) {
  const int64_t block_bytes = std::min(options_.block_bytes, values_.slot_bytes());
  const int64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  const auto bytes_of = [&](int64_t k) { return std::min(block_bytes, bytes - k * block_bytes); };
  Walk posted(spans);
  const auto post = [&](int64_t k) {
    const uint32_t turn = value_turn_ + static_cast<uint32_t>(k);
    char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(values_.Claim(turn, &slot));
    for (int64_t at = 0; at < bytes_of(k);) {
      const Span part = posted.Next(bytes_of(k) - at);
      CopyIn(slot + at, static_cast<const char*>(part.in), part.bytes);
      at += part.bytes;
    }
    values_.Post(turn);
    return Status::Ok();
  };
  TFHVD_RETURN_IF_ERROR(post(0));
  Walk reduced(spans);
  for (int64_t k = 0; k < blocks; ++k) {
    if (k + 1 < blocks) TFHVD_RETURN_IF_ERROR(post(k + 1));
    const uint32_t turn = value_turn_ + static_cast<uint32_t>(k);
    for (int r = 0; r < ranks_; ++r) TFHVD_RETURN_IF_ERROR(values_.Read(turn, r, &from_[r]));
    for (int64_t at = 0; at < bytes_of(k);) {
      const Span part = reduced.Next(bytes_of(k) - at);
      for (int r = 0; r < ranks_; ++r) sources_[r] = from_[r] + at;
      sources_[rank_] = part.in;
      ReduceRanks(part.out, sources_.data(), ranks_, part.bytes / ItemSize(dtype), dtype, reduction,
                  place);
      at += part.bytes;
    }
    values_.Done(turn);
  }
  value_turn_ += static_cast<uint32_t>(blocks);
  return Status::Ok();
}

Status ShmCommunicator::AllReduceSpans(const std::vector<Span>& spans, DType dtype,
                                       const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Health());
  int64_t bytes = 0;
  for (const Span& span : spans) bytes += span.bytes;
  if (bytes == 0) return Status::Ok();
  return DirectAllReduce(spans.data(), bytes, dtype, reduction, ResultIn::kCaches);
}

Status ShmCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                  const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Health());
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  const int64_t bytes = count * ItemSize(dtype);
  if (bytes == 0) return Status::Ok();
  if (IsDirect(bytes)) {
    const Span whole{in, out, bytes};
    const bool past_caches = in != out && bytes >= options_.result_past_caches;
    return DirectAllReduce(&whole, bytes, dtype, reduction,
                           past_caches ? ResultIn::kMemory : ResultIn::kCaches);
  }
  const int64_t block_bytes = values_.slot_bytes() / kLine * kLine;
  const int64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  const auto block = [&](int64_t k) {
    const int64_t at = k * block_bytes;
    return Block{from + at, to + at, std::min(block_bytes, bytes - at),
                 value_turn_ + static_cast<uint32_t>(k), result_turn_ + static_cast<uint32_t>(k)};
  };
  for (int64_t k = 0; k < blocks + 2; ++k) {
    if (k < blocks) TFHVD_RETURN_IF_ERROR(PostValues(block(k)));
    if (k >= 1 && k - 1 < blocks) TFHVD_RETURN_IF_ERROR(ReducePart(block(k - 1), dtype, reduction));
    if (k >= 2) TFHVD_RETURN_IF_ERROR(CopyResults(block(k - 2)));
  }
  value_turn_ += static_cast<uint32_t>(blocks);
  result_turn_ += static_cast<uint32_t>(blocks);
  return Status::Ok();
}

Status ShmCommunicator::AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) {
  TFHVD_RETURN_IF_ERROR(Health());
  const char* from = static_cast<const char*>(in);
  std::vector<char*> to(ranks_);
  char* at = static_cast<char*>(out);
  for (int r = 0; r < ranks_; ++r) {
    to[r] = at;
    at += bytes[r];
  }
  // Input and output may be the same: then the own block moves within it.
  if (bytes[rank_] > 0 && from != to[rank_]) {
    std::memmove(to[rank_], from, static_cast<size_t>(bytes[rank_]));
  }
  const int64_t most = *std::max_element(bytes.begin(), bytes.end());
  for (int64_t done = 0; done < most; done += values_.slot_bytes()) {
    const auto part = [&](int r) {
      return std::clamp<int64_t>(bytes[r] - done, 0, values_.slot_bytes());
    };
    const uint32_t turn = value_turn_++;
    char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(values_.Claim(turn, &slot));
    CopyIn(slot, to[rank_] + done, part(rank_));
    values_.Post(turn);
    for (int i = 1; i < ranks_; ++i) {
      const int r = (rank_ + i) % ranks_;
      const char* theirs = nullptr;
      TFHVD_RETURN_IF_ERROR(values_.Read(turn, r, &theirs));
      if (part(r) > 0) std::memcpy(to[r] + done, theirs, static_cast<size_t>(part(r)));
    }
    values_.Done(turn);
  }
  return Status::Ok();
}

Status ShmCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  TFHVD_RETURN_IF_ERROR(Health());
  char* data = static_cast<char*>(buffer);
  for (int64_t done = 0; done < bytes; done += values_.slot_bytes()) {
    const int64_t part = std::min(values_.slot_bytes(), bytes - done);
    const uint32_t turn = value_turn_++;
    if (rank_ == root) {
      char* slot = nullptr;
      TFHVD_RETURN_IF_ERROR(values_.Claim(turn, &slot));
      CopyIn(slot, data + done, part);
    }
    values_.Post(turn);
    if (rank_ != root) {
      const char* theirs = nullptr;
      TFHVD_RETURN_IF_ERROR(values_.Read(turn, root, &theirs));
      std::memcpy(data + done, theirs, static_cast<size_t>(part));
    }
    values_.Done(turn);
  }
  return Status::Ok();
}

Status ShmCommunicator::ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts,
                                      DType dtype, const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Health());
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
  const auto fill = [&](int rank, int64_t at, int64_t lane, char* slot) {
    CopyIn(slot, begins[rank] + at, part(rank, at, lane));
  };
  const auto take = [&](int64_t at, int64_t lane) {
    const int64_t bytes = part(rank_, at, lane);
    if (bytes == 0) return;
    for (int r = 0; r < ranks_; ++r) sources_[r] = r == rank_ ? begins[r] + at : from_[r];
    ReduceRanks(static_cast<char*>(out) + at, sources_.data(), ranks_, bytes / item, dtype,
                reduction);
  };
  return ByLanes(most, fill, take);
}

// Moves blocks of up to `most` bytes from every rank to every other. A turn carries a lane of bytes
// for each rank: `fill` puts what follows `at` of this rank's block for `rank` into the slot, then
// `take` finds the others' lanes for this rank in `from_`.
template <typename Fill, typename Take>
Status ShmCommunicator::ByLanes(int64_t most, const Fill& fill, const Take& take) {
  const int64_t lane = values_.slot_bytes() / ranks_ / kLine * kLine;
  for (int64_t at = 0; at < most; at += lane) {
    const uint32_t turn = value_turn_++;
    char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(values_.Claim(turn, &slot));
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_) fill(r, at, lane, slot + r * lane);
    }
    values_.Post(turn);
    for (int r = 0; r < ranks_; ++r) {
      TFHVD_RETURN_IF_ERROR(values_.Read(turn, r, &from_[r]));
      from_[r] += rank_ * lane;
    }
    take(at, lane);
    values_.Done(turn);
  }
  return Status::Ok();
}

Status ShmCommunicator::AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                                 const std::vector<int64_t>& recv_bytes) {
  TFHVD_RETURN_IF_ERROR(Health());
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

  // No rank knows all the others' sizes, so everybody takes as many turns as the largest block
  // needs: that is agreed on first.
  int64_t most = 0;
  for (int r = 0; r < ranks_; ++r) most = std::max({most, send_bytes[r], recv_bytes[r]});
  Reduction max;
  max.op = ReduceOp::kMax;
  TFHVD_RETURN_IF_ERROR(AllReduce(&most, &most, 1, DType::kInt64, max));

  const auto fill = [&](int rank, int64_t at, int64_t lane, char* slot) {
    CopyIn(slot, from[rank] + at, std::clamp<int64_t>(send_bytes[rank] - at, 0, lane));
  };
  const auto take = [&](int64_t at, int64_t lane) {
    // Each rank begins with its neighbour, so that they do not all read the same memory.
    for (int i = 1; i < ranks_; ++i) {
      const int r = (rank_ + i) % ranks_;
      const int64_t bytes = std::clamp<int64_t>(recv_bytes[r] - at, 0, lane);
      if (bytes > 0) std::memcpy(to[r] + at, from_[r], static_cast<size_t>(bytes));
    }
  };
  return ByLanes(most, fill, take);
}

Status ShmCommunicator::Barrier() {
  TFHVD_RETURN_IF_ERROR(Health());
  const uint32_t turn = value_turn_++;
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(values_.Claim(turn, &slot));
  values_.Post(turn);
  for (int r = 0; r < ranks_; ++r) {
    const char* ignored = nullptr;
    TFHVD_RETURN_IF_ERROR(values_.Read(turn, r, &ignored));
  }
  values_.Done(turn);
  return Status::Ok();
}

}  // namespace tfhvd
