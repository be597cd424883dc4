#include "cc/backends/hierarchical/level_memory.h"

#include <cstring>

namespace tfhvd {
namespace {

class HostLevelMemory : public LevelMemory {
 public:
  Status Get(StagingBuffer buffer, int64_t bytes, char** memory) override {
    std::vector<char>& kept = buffers_[buffer];
    if (static_cast<int64_t>(kept.size()) < bytes) kept.resize(static_cast<size_t>(bytes));
    *memory = kept.data();
    return Status::Ok();
  }

  Status Copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
    return Status::Ok();
  }

  Status Widen(void* out, const void* in, int64_t count, DType dtype,
               const Reduction& reduction) override {
    ::tfhvd::Widen(out, in, count, dtype, reduction);
    return Status::Ok();
  }

  Status Complete(void* out, const void* in, int ranks, int64_t count, DType dtype,
                  const Reduction& reduction) override {
    ::tfhvd::Complete(out, in, ranks, count, dtype, reduction);
    return Status::Ok();
  }

  Status GatherNumbers(Communicator* local, const std::vector<int64_t>& mine,
                       std::vector<int64_t>* all) override {
    const size_t locals = static_cast<size_t>(local->size());
    all->resize(mine.size() * locals);
    const int64_t bytes = static_cast<int64_t>(mine.size() * sizeof(int64_t));
    return local->AllGather(mine.data(), all->data(), std::vector<int64_t>(locals, bytes));
  }

 private:
  std::vector<char> buffers_[kStagingBuffers];
};

}  // namespace

std::unique_ptr<LevelMemory> MakeHostLevelMemory() { return std::make_unique<HostLevelMemory>(); }

}  // namespace tfhvd
