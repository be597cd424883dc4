#include "cc/process/gpu_levels.h"

#include <cstdint>
#include <utility>

#include "cc/backends/hierarchical/hierarchical_communicator.h"
#include "cc/backends/hierarchical/host_layout.h"
#include "cc/backends/nccl/agreement.h"
#include "cc/backends/staged/staged_communicator.h"
#include "cc/comm/gather.h"

namespace tfhvd {
namespace {

class GpuLevelMemory : public LevelMemory {
 public:
  explicit GpuLevelMemory(CudaDevice* device) : device_(*device) {}
  ~GpuLevelMemory() override {
    for (Kept& buffer : buffers_) (void)Free(&buffer);
    for (Kept* const buffer : {&narrow_, &numbers_, &moved_}) (void)Free(buffer);
  }

  Status Get(StagingBuffer buffer, int64_t bytes, char** memory) override {
    return Grow(&buffers_[buffer], bytes, memory);
  }

  // At once, in order: what is copied next may be what was just written.
  Status Copy(void* to, const void* from, int64_t bytes) override {
    if (to == from || bytes == 0) return Status::Ok();
    // An input at the start of its output may reach into the part that it is moved to, and a
    // device copies in no order.
    if (Overlap(to, from, bytes)) {
      char* between = nullptr;
      TFHVD_RETURN_IF_ERROR(Grow(&moved_, bytes, &between));
      TFHVD_RETURN_IF_ERROR(device_.Copy(between, from, bytes));
      TFHVD_RETURN_IF_ERROR(Flush());
      from = between;
    }
    TFHVD_RETURN_IF_ERROR(device_.Copy(to, from, bytes));
    return Flush();
  }

  Status Widen(void* out, const void* in, int64_t count, DType dtype,
               const Reduction& reduction) override {
    device_.copies()->AddScaled(out, TypeBetween(dtype, reduction), in, dtype, count,
                                reduction.prescale);
    return Flush();
  }

  Status Complete(void* out, const void* in, int ranks, int64_t count, DType dtype,
                  const Reduction& reduction) override {
    const DType between = TypeBetween(dtype, reduction);
    const double divisor = reduction.op == ReduceOp::kAverage ? ranks : 1.0;
    const double factor = reduction.postscale / divisor;
    if (between == dtype && factor == 1.0) return Copy(out, in, count * ItemSize(dtype));
    // Many threads write at once: not where others still read wider elements.
    char* to = static_cast<char*>(out);
    if (between != dtype && out == in) {
      TFHVD_RETURN_IF_ERROR(Grow(&narrow_, count * ItemSize(dtype), &to));
    }
    device_.copies()->AddScaled(to, dtype, in, between, count, factor);
    TFHVD_RETURN_IF_ERROR(Flush());
    return Copy(out, to, count * ItemSize(dtype));
  }

  Status GatherNumbers(Communicator* local, const std::vector<int64_t>& mine,
                       std::vector<int64_t>* all) override {
    const size_t locals = static_cast<size_t>(local->size());
    const int64_t bytes = static_cast<int64_t>(mine.size() * sizeof(int64_t));
    all->resize(mine.size() * locals);
    char* own = nullptr;
    TFHVD_RETURN_IF_ERROR(Grow(&numbers_, bytes * (local->size() + 1), &own));
    TFHVD_RETURN_IF_ERROR(device_.CopyFromHost(own, mine.data(), bytes));
    TFHVD_RETURN_IF_ERROR(local->AllGather(own, own + bytes, std::vector<int64_t>(locals, bytes)));
    return device_.CopyToHost(all->data(), own + bytes, bytes * local->size());
  }

 private:
  struct Kept {
    cuda::Pointer memory = 0;
    int64_t bytes = 0;
  };

  static bool Overlap(const void* to, const void* from, int64_t bytes) {
    const auto a = reinterpret_cast<uintptr_t>(to);
    const auto b = reinterpret_cast<uintptr_t>(from);
    return (a < b ? b - a : a - b) < static_cast<uintptr_t>(bytes);
  }

  Status Flush() {
    cuda::Stream stream = nullptr;
    return device_.Flush(&stream);
  }

  Status Free(Kept* buffer) {
    if (buffer->memory == 0) return Status::Ok();
    const CudaScope scope(device_.driver(), device_.context());
    TFHVD_CUDA_CALL(device_.driver(), cuMemFree_v2(std::exchange(buffer->memory, 0)));
    buffer->bytes = 0;
    return Status::Ok();
  }

  Status Grow(Kept* buffer, int64_t bytes, char** memory) {
    if (bytes > buffer->bytes) {
      TFHVD_RETURN_IF_ERROR(device_.Drain());  // what uses the old one must be over
      TFHVD_RETURN_IF_ERROR(Free(buffer));
      const CudaScope scope(device_.driver(), device_.context());
      const int64_t rounded = (bytes + 0xffff) & ~int64_t{0xffff};
      const cuda::Result result =
          device_.driver().cuMemAlloc_v2(&buffer->memory, static_cast<size_t>(rounded));
      if (result != cuda::kSuccess) {
        buffer->memory = 0;
        return Status::Unavailable(
            "no memory on the GPU for " + std::to_string(rounded) +
            " bytes between the levels of a collective: " + device_.driver().ErrorText(result) +
            ". Let TensorFlow leave some "
            "(TF_FORCE_GPU_ALLOW_GROWTH=true), or unset "
            "TFHVD_GPU_OPERATIONS.");
      }
      buffer->bytes = rounded;
    }
    *memory = reinterpret_cast<char*>(static_cast<uintptr_t>(buffer->memory));
    return Status::Ok();
  }

  CudaDevice& device_;  // Not owned.
  Kept buffers_[kStagingBuffers];
  Kept narrow_;
  Kept numbers_;
  Kept moved_;
};

// The levels, with the host communicators that they rest on, and the flat one for the rest.
class GpuLevelsCommunicator : public Communicator {
 public:
  GpuLevelsCommunicator(std::unique_ptr<Communicator> host_local,
                        std::unique_ptr<Communicator> host_across,
                        std::unique_ptr<Communicator> flat, std::unique_ptr<Communicator> levels,
                        bool kernel)
      : host_local_(std::move(host_local)),
        host_across_(std::move(host_across)),
        flat_(std::move(flat)),
        levels_(std::move(levels)),
        kernel_(kernel) {}

  const char* name() const override { return levels_->name(); }
  int rank() const override { return flat_->rank(); }
  int size() const override { return flat_->size(); }
  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override {
    return For(dtype, reduction).AllReduce(in, out, count, dtype, reduction);
  }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override {
    return levels_->AllGather(in, out, bytes);
  }
  Status Broadcast(void* buffer, int64_t bytes, int root) override {
    return levels_->Broadcast(buffer, bytes, root);
  }
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override {
    return For(dtype, reduction).ReduceScatter(in, out, counts, dtype, reduction);
  }
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override {
    return levels_->AllToAll(in, send_bytes, out, recv_bytes);
  }
  Status Barrier() override { return levels_->Barrier(); }
  Status Poll() override { return levels_->Poll(); }
  void Abort(const Status& why) override {
    levels_->Abort(why);
    flat_->Abort(why);
    host_local_->Abort(why);
    if (host_across_ != nullptr) host_across_->Abort(why);
  }

 private:
  Communicator& For(DType dtype, const Reduction& reduction) {
    const bool plain = reduction.op != ReduceOp::kAverage && reduction.prescale == 1.0 &&
                       reduction.postscale == 1.0 && TypeBetween(dtype, reduction) == dtype;
    return plain || (kernel_ && IsFloat(dtype)) ? *levels_ : *flat_;
  }

  const std::unique_ptr<Communicator> host_local_;
  const std::unique_ptr<Communicator> host_across_;  // null where this rank has no lane
  const std::unique_ptr<Communicator> flat_;
  const std::unique_ptr<Communicator> levels_;
  const bool kernel_;
};

std::vector<int> Of(const std::vector<int>& ranks, const std::vector<int>& which) {
  std::vector<int> chosen;
  for (const int i : which) chosen.push_back(ranks[static_cast<size_t>(i)]);
  return chosen;
}

}  // namespace

std::unique_ptr<LevelMemory> MakeGpuLevelMemory(CudaDevice* device) {
  return std::make_unique<GpuLevelMemory>(device);
}

Status MakeGpuLevels(const NcclApi& api, CudaDevice* device, Communicator* host,
                     std::unique_ptr<Communicator> flat, const GpuLevels& options,
                     std::unique_ptr<Communicator>* out) {
  std::vector<int> ranks;
  TFHVD_RETURN_IF_ERROR(Gather(host, options.job_rank, &ranks));
  const HostLayout layout = MakeHostLayout(Of(options.host_of, ranks));
  const bool one_host = layout.hosts() == 1;
  if (one_host || layout.hosts() == layout.size()) {
    if (ranks.size() == options.host_of.size()) {
      return Status::Unavailable(one_host ? "all ranks are on one host"
                                          : "every host has one rank");
    }
    if (one_host || options.nccl_across) {
      return NcclCommunicator::Make(api, device, host, std::move(flat), options.nccl, out);
    }
    *out = std::move(flat);
    return Status::Ok();
  }
  const size_t me = static_cast<size_t>(host->rank());
  const bool in_lane = layout.local_of[me] < layout.lanes;
  std::unique_ptr<Communicator> host_local, host_across, local, across;
  TFHVD_RETURN_IF_ERROR(options.open(
      Of(ranks, layout.ranks_of[static_cast<size_t>(layout.host_of[me])]), &host_local));
  if (in_lane) {
    TFHVD_RETURN_IF_ERROR(
        options.open(Of(ranks, layout.LaneRanks(layout.local_of[me])), &host_across));
  }
  Status made = NcclCommunicator::Make(api, device, host_local.get(),
                                       MakeStagedCommunicator(device, host_local.get()),
                                       options.nccl, &local);
  // A host alone may fail: all must hear of it before they go on across.
  TFHVD_RETURN_IF_ERROR(AgreeOnStatus(host, made));
  if (in_lane) {
    across = MakeStagedCommunicator(device, host_across.get());
    if (options.nccl_across) {
      made = NcclCommunicator::Make(api, device, host_across.get(), std::move(across), options.nccl,
                                    &across);
    }
  }
  TFHVD_RETURN_IF_ERROR(AgreeOnStatus(host, made));
  int32_t kernel = device->copies()->has_kernel() ? 1 : 0;
  TFHVD_RETURN_IF_ERROR(
      host->AllReduce(&kernel, &kernel, 1, DType::kInt32, {ReduceOp::kMin, 1.0, 1.0}));
  HierarchicalOptions between;
  between.wide_floats = true;  // NCCL would round a host's sum once for each of its ranks
  auto levels = std::make_unique<HierarchicalCommunicator>(layout, host->rank(), std::move(local),
                                                           std::move(across), between,
                                                           MakeGpuLevelMemory(device));
  *out = std::make_unique<GpuLevelsCommunicator>(std::move(host_local), std::move(host_across),
                                                 std::move(flat), std::move(levels), kernel == 1);
  return Status::Ok();
}

}  // namespace tfhvd
