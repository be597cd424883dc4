#include "cc/backends/shm/shm_allreduce.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cc/backends/shm/timed_block.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {
namespace {

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
struct ShmAllReduce::Block {
  const char* in;
  char* out;
  int64_t bytes;
  uint32_t values;
  uint32_t results;
  TimedBlock timed;
};

Status ShmAllReduce::PostValues(Block* block) {
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(blocks_->values.Claim(block->values, &slot));
  {
    const TimedBlock::Work work(&block->timed);
    // All except this rank's part, which no other rank reads.
    const int64_t begin = PartBegin(block->bytes, blocks_->ranks, blocks_->rank);
    const int64_t end = PartBegin(block->bytes, blocks_->ranks, blocks_->rank + 1);
    blocks_->CopyIn(slot, block->in, begin, block->timed.stores());
    blocks_->CopyIn(slot + end, block->in + end, block->bytes - end, block->timed.stores());
  }
  blocks_->values.Post(block->values);
  options_.failpoints.Hit(Failpoint::kValuesPosted);
  return Status::Ok();
}

Status ShmAllReduce::ReducePart(Block* block, DType dtype, const Reduction& reduction) {
  const int64_t begin = PartBegin(block->bytes, blocks_->ranks, blocks_->rank);
  const int64_t end = PartBegin(block->bytes, blocks_->ranks, blocks_->rank + 1);
  for (int r = 0; r < blocks_->ranks; ++r) {
    TFHVD_RETURN_IF_ERROR(blocks_->values.Read(block->values, r, &blocks_->from[r]));
  }
  blocks_->from[blocks_->rank] = block->in;
  char* slot = nullptr;
  TFHVD_RETURN_IF_ERROR(blocks_->results.Claim(block->results, &slot));
  {
    const TimedBlock::Work work(&block->timed);
    SlotWriter writer(slot, block->timed.stores(), &blocks_->near);
    for (int64_t at = begin; at < end; at += kReduceStep) {
      const int64_t bytes = std::min(kReduceStep, end - at);
      for (int r = 0; r < blocks_->ranks; ++r) blocks_->sources[r] = blocks_->from[r] + at;
      ReduceRanks(block->out + at, blocks_->sources.data(), blocks_->ranks, bytes / ItemSize(dtype),
                  dtype, reduction);
      writer.Add(block->out + at, bytes);
    }
    writer.End();
  }
  blocks_->values.Done(block->values);
  blocks_->results.Post(block->results);
  options_.failpoints.Hit(Failpoint::kResultsPosted);
  return Status::Ok();
}

Status ShmAllReduce::CopyResults(Block* block) {
  // Each rank begins with its neighbour, so that the ranks do not all read the same memory.
  for (int i = 1; i < blocks_->ranks; ++i) {
    const int r = (blocks_->rank + i) % blocks_->ranks;
    const char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(blocks_->results.Read(block->results, r, &slot));
    const TimedBlock::Work work(&block->timed);
    const int64_t begin = PartBegin(block->bytes, blocks_->ranks, r);
    const int64_t end = PartBegin(block->bytes, blocks_->ranks, r + 1);
    std::memcpy(block->out + begin, slot, static_cast<size_t>(end - begin));
  }
  blocks_->results.Done(block->results);
  block->timed.End();
  return Status::Ok();
}

// Every rank posts all its values and reduces those of all ranks. It posts the next block before it
// waits for this one.
Status ShmAllReduce::InOneExchange(const Span* spans, int64_t bytes, DType dtype,
                                   const Reduction& reduction, StoreIn store) {
  const int64_t block_bytes = std::min(options_.block_bytes, blocks_->values.slot_bytes());
  const int64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  const auto bytes_of = [&](int64_t k) { return std::min(block_bytes, bytes - k * block_bytes); };
  std::array<TimedBlock, 2> in_flight;
  Walk posted(spans);
  const auto post = [&](int64_t k) {
    TimedBlock& block = in_flight[static_cast<size_t>(k % 2)];
    block = blocks_->NewBlock(&in_one_, bytes_of(k));
    const uint32_t round = blocks_->value_round + static_cast<uint32_t>(k);
    char* slot = nullptr;
    TFHVD_RETURN_IF_ERROR(blocks_->values.Claim(round, &slot));
    {
      const TimedBlock::Work work(&block);
      SlotWriter writer(slot, block.stores(), &blocks_->near);
      for (int64_t left = bytes_of(k); left > 0;) {
        const Span part = posted.Next(left);
        writer.Add(static_cast<const char*>(part.in), part.bytes);
        left -= part.bytes;
      }
      writer.End();
    }
    blocks_->values.Post(round);
    options_.failpoints.Hit(Failpoint::kValuesPosted);
    return Status::Ok();
  };
  TFHVD_RETURN_IF_ERROR(post(0));
  Walk reduced(spans);
  for (int64_t k = 0; k < blocks; ++k) {
    if (k + 1 < blocks) TFHVD_RETURN_IF_ERROR(post(k + 1));
    TimedBlock& block = in_flight[static_cast<size_t>(k % 2)];
    const uint32_t round = blocks_->value_round + static_cast<uint32_t>(k);
    for (int r = 0; r < blocks_->ranks; ++r)
      TFHVD_RETURN_IF_ERROR(blocks_->values.Read(round, r, &blocks_->from[r]));
    {
      const TimedBlock::Work work(&block);
      for (int64_t at = 0; at < bytes_of(k);) {
        const Span part = reduced.Next(bytes_of(k) - at);
        for (int r = 0; r < blocks_->ranks; ++r) blocks_->sources[r] = blocks_->from[r] + at;
        blocks_->sources[blocks_->rank] = part.in;
        ReduceRanks(part.out, blocks_->sources.data(), blocks_->ranks, part.bytes / ItemSize(dtype),
                    dtype, reduction, store);
        at += part.bytes;
      }
    }
    blocks_->values.Done(round);
    block.End();
  }
  blocks_->value_round += static_cast<uint32_t>(blocks);
  return Status::Ok();
}

Status ShmAllReduce::RunSpans(const std::vector<Span>& spans, DType dtype,
                              const Reduction& reduction) {
  int64_t bytes = 0;
  for (const Span& span : spans) bytes += span.bytes;
  if (bytes == 0) return Status::Ok();
  return InOneExchange(spans.data(), bytes, dtype, reduction, StoreIn::kCaches);
}

Status ShmAllReduce::Run(const void* in, void* out, int64_t count, DType dtype,
                         const Reduction& reduction) {
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  const int64_t bytes = count * ItemSize(dtype);
  if (bytes == 0) return Status::Ok();
  if (is_direct(bytes)) {
    const Span whole{in, out, bytes};
    const bool past_caches = in != out && bytes >= options_.result_past_caches;
    return InOneExchange(&whole, bytes, dtype, reduction,
                         past_caches ? StoreIn::kMemory : StoreIn::kCaches);
  }
  const int64_t block_bytes = blocks_->values.slot_bytes() / Exchange::kLine * Exchange::kLine;
  const int64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  // Three are in flight: one with posted values, one that is reduced, one that is copied out.
  std::array<Block, 3> in_flight;
  const auto block = [&](int64_t k) { return &in_flight[static_cast<size_t>(k % 3)]; };
  for (int64_t k = 0; k < blocks + 2; ++k) {
    if (k < blocks) {
      const int64_t at = k * block_bytes;
      const int64_t here = std::min(block_bytes, bytes - at);
      const auto ahead = static_cast<uint32_t>(k);
      *block(k) = {from + at,
                   to + at,
                   here,
                   blocks_->value_round + ahead,
                   blocks_->result_round + ahead,
                   blocks_->NewBlock(&in_two_, here)};
      TFHVD_RETURN_IF_ERROR(PostValues(block(k)));
    }
    if (k >= 1 && k - 1 < blocks) TFHVD_RETURN_IF_ERROR(ReducePart(block(k - 1), dtype, reduction));
    if (k >= 2) TFHVD_RETURN_IF_ERROR(CopyResults(block(k - 2)));
  }
  blocks_->value_round += static_cast<uint32_t>(blocks);
  blocks_->result_round += static_cast<uint32_t>(blocks);
  return Status::Ok();
}

}  // namespace tfhvd
