// The allreduces of ShmCommunicator: in one exchange, or in blocks of which each rank reduces a
// part.
#include <algorithm>
#include <array>
#include <cstring>

#include "cc/backends/shm/shm_communicator.h"

namespace tfhvd {
namespace {

// The number of bytes of all ranks together up to which a single exchange, in which every rank
// reduces everything, is faster. For few ranks it always is.
constexpr int64_t kSmallBytes = 256 * 1024;

// The size of steps, so that a reduced part is copied while it is still in the nearest cache.
constexpr int64_t kReduceStep = 16 * 1024;

int64_t PartBegin(int64_t bytes, int ranks, int rank) {
  const int64_t even = (bytes + ranks - 1) / ranks;
  const int64_t rounded = (even + Exchange::kLine - 1) / Exchange::kLine * Exchange::kLine;
  return std::min(bytes, rounded * rank);
}

// Walks through spans in parts, each of which is in one span.
class Walk {
 public:
  explicit Walk(const Span* spans) : span_(spans) {}

  // Returns the next part, of at most `most` bytes. REQUIRES: there are more; most > 0.
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

// A block of a reduction: `bytes` bytes at `in` and `out`, first in the exchange of values, then in
// that of results.
struct ShmCommunicator::Block {
  const char* in;
  char* out;
  int64_t bytes;
  uint32_t values;
  uint32_t results;
  TimedBlock timed;
};

Status ShmCommunicator::PostValues(Block* block) {
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(values_.Claim(block->values, &slot));
  {
    const TimedBlock::Work work(&block->timed);
    // All except this rank's part, which no other rank reads.
    const int64_t begin = PartBegin(block->bytes, ranks_, rank_);
    const int64_t end = PartBegin(block->bytes, ranks_, rank_ + 1);
    CopyIn(slot, block->in, begin, block->timed.stores());
    CopyIn(slot + end, block->in + end, block->bytes - end, block->timed.stores());
  }
  values_.Post(block->values);
  options_.failpoints.Pass(Failpoint::kValuesPosted);
  return Status::Ok();
}

Status ShmCommunicator::ReducePart(Block* block, DType dtype, const Reduction& reduction) {
  const int64_t begin = PartBegin(block->bytes, ranks_, rank_);
  const int64_t end = PartBegin(block->bytes, ranks_, rank_ + 1);
  for (int r = 0; r < ranks_; ++r) {
    TFHVD_RETURN_IF_ERROR(values_.Read(block->values, r, &from_[r]));
  }
  from_[rank_] = block->in;
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(results_.Claim(block->results, &slot));
  {
    const TimedBlock::Work work(&block->timed);
    SlotWriter writer(slot, block->timed.stores(), &near_);
    for (int64_t at = begin; at < end; at += kReduceStep) {
      const int64_t bytes = std::min(kReduceStep, end - at);
      for (int r = 0; r < ranks_; ++r) sources_[r] = from_[r] + at;
      ReduceRanks(block->out + at, sources_.data(), ranks_, bytes / ItemSize(dtype), dtype,
                  reduction);
      writer.Add(block->out + at, bytes);
    }
    writer.End();
  }
  values_.Done(block->values);
  results_.Post(block->results);
  options_.failpoints.Pass(Failpoint::kResultsPosted);
  return Status::Ok();
}

Status ShmCommunicator::CopyResults(Block* block) {
  // Each rank begins with its neighbour, so that the ranks do not all read the same memory.
  for (int i = 1; i < ranks_; ++i) {
    const int r = (rank_ + i) % ranks_;
    const char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(results_.Read(block->results, r, &slot));
    const TimedBlock::Work work(&block->timed);
    const int64_t begin = PartBegin(block->bytes, ranks_, r);
    const int64_t end = PartBegin(block->bytes, ranks_, r + 1);
    std::memcpy(block->out + begin, slot, static_cast<size_t>(end - begin));
  }
  results_.Done(block->results);
  block->timed.End();
  return Status::Ok();
}

// Returns whether to use a single exchange in which every rank reduces everything.
bool ShmCommunicator::IsDirect(int64_t bytes) const {
  return ranks_ <= kFewRanks || bytes * ranks_ <= kSmallBytes;
}

// Every rank posts all its values and reduces those of all ranks. It posts the next block before it
// waits for this one.
Status ShmCommunicator::DirectAllReduce(const Span* spans, int64_t bytes, DType dtype,
                                        const Reduction& reduction, StoreIn store) {
  const int64_t block_bytes = std::min(options_.block_bytes, values_.slot_bytes());
  const int64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  const auto bytes_of = [&](int64_t k) { return std::min(block_bytes, bytes - k * block_bytes); };
  std::array<TimedBlock, 2> in_flight;
  Walk posted(spans);
  const auto post = [&](int64_t k) {
    TimedBlock& block = in_flight[static_cast<size_t>(k % 2)];
    block = NewBlock(&in_one_, bytes_of(k));
    const uint32_t round = value_round_ + static_cast<uint32_t>(k);
    char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(values_.Claim(round, &slot));
    {
      const TimedBlock::Work work(&block);
      SlotWriter writer(slot, block.stores(), &near_);
      for (int64_t left = bytes_of(k); left > 0;) {
        const Span part = posted.Next(left);
        writer.Add(static_cast<const char*>(part.in), part.bytes);
        left -= part.bytes;
      }
      writer.End();
    }
    values_.Post(round);
    options_.failpoints.Pass(Failpoint::kValuesPosted);
    return Status::Ok();
  };
  TFHVD_RETURN_IF_ERROR(post(0));
  Walk reduced(spans);
  for (int64_t k = 0; k < blocks; ++k) {
    if (k + 1 < blocks) TFHVD_RETURN_IF_ERROR(post(k + 1));
    TimedBlock& block = in_flight[static_cast<size_t>(k % 2)];
    const uint32_t round = value_round_ + static_cast<uint32_t>(k);
    for (int r = 0; r < ranks_; ++r) TFHVD_RETURN_IF_ERROR(values_.Read(round, r, &from_[r]));
    {
      const TimedBlock::Work work(&block);
      for (int64_t at = 0; at < bytes_of(k);) {
        const Span part = reduced.Next(bytes_of(k) - at);
        for (int r = 0; r < ranks_; ++r) sources_[r] = from_[r] + at;
        sources_[rank_] = part.in;
        ReduceRanks(part.out, sources_.data(), ranks_, part.bytes / ItemSize(dtype), dtype,
                    reduction, store);
        at += part.bytes;
      }
    }
    values_.Done(round);
    block.End();
  }
  value_round_ += static_cast<uint32_t>(blocks);
  return Status::Ok();
}

Status ShmCommunicator::AllReduceSpans(const std::vector<Span>& spans, DType dtype,
                                       const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Poll());
  int64_t bytes = 0;
  for (const Span& span : spans) bytes += span.bytes;
  if (bytes == 0) return Status::Ok();
  return DirectAllReduce(spans.data(), bytes, dtype, reduction, StoreIn::kCaches);
}

Status ShmCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                  const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(Poll());
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  const int64_t bytes = count * ItemSize(dtype);
  if (bytes == 0) return Status::Ok();
  if (IsDirect(bytes)) {
    const Span whole{in, out, bytes};
    const bool past_caches = in != out && bytes >= options_.result_past_caches;
    return DirectAllReduce(&whole, bytes, dtype, reduction,
                           past_caches ? StoreIn::kMemory : StoreIn::kCaches);
  }
  const int64_t block_bytes = values_.slot_bytes() / Exchange::kLine * Exchange::kLine;
  const int64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  // Three are in flight: one with posted values, one that is reduced, one that is copied out.
  std::array<Block, 3> in_flight;
  const auto block = [&](int64_t k) { return &in_flight[static_cast<size_t>(k % 3)]; };
  for (int64_t k = 0; k < blocks + 2; ++k) {
    if (k < blocks) {
      const int64_t at = k * block_bytes;
      const int64_t here = std::min(block_bytes, bytes - at);
      const auto turn = static_cast<uint32_t>(k);
      *block(k) = {from + at,
                   to + at,
                   here,
                   value_round_ + turn,
                   result_round_ + turn,
                   NewBlock(&in_two_, here)};
      TFHVD_RETURN_IF_ERROR(PostValues(block(k)));
    }
    if (k >= 1 && k - 1 < blocks) TFHVD_RETURN_IF_ERROR(ReducePart(block(k - 1), dtype, reduction));
    if (k >= 2) TFHVD_RETURN_IF_ERROR(CopyResults(block(k - 2)));
  }
  value_round_ += static_cast<uint32_t>(blocks);
  result_round_ += static_cast<uint32_t>(blocks);
  return Status::Ok();
}

}  // namespace tfhvd
