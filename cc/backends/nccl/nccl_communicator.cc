#include "cc/backends/nccl/nccl_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cc/backends/nccl/agreement.h"
#include "cc/backends/nccl/nccl_errors.h"
#include "cc/base/backoff.h"
#include "cc/numeric/half.h"

namespace tfhvd {
namespace {

// How long the end of a communicator waits for NCCL.
constexpr double kFinalizeSeconds = 5.0;

int64_t Sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

bool AllEqual(const std::vector<int64_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n == sizes[0]; });
}

char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }
const char* At(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclApi& api, CudaDevice* device,
                                   std::unique_ptr<Communicator> fallback, double deadline,
                                   int rank, int size)
    : api_(api),
      device_(*device),
      fallback_(std::move(fallback)),
      deadline_(deadline),
      rank_(rank),
      size_(size) {}

Status NcclCommunicator::Make(const NcclApi& api, CudaDevice* device, Communicator* host,
                              std::unique_ptr<Communicator> fallback, const NcclOptions& options,
                              std::unique_ptr<Communicator>* out) {
  if (!options.shared_gpu) TFHVD_RETURN_IF_ERROR(CheckEachHasItsGpu(host, *device));
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(
      api, device, std::move(fallback), options.deadline, host->rank(), host->size()));
  made->SetWaitMonitor(host->wait_monitor());
  nccl::UniqueId id = {};
  Status status;
  if (host->rank() == 0) {
    const nccl::Result result = api.ncclGetUniqueId(&id);
    if (result != nccl::kSuccess) status = NcclFailed(api, "ncclGetUniqueId", result, nullptr);
  }
  TFHVD_RETURN_IF_ERROR(AgreeOnStatus(host, status));
  TFHVD_RETURN_IF_ERROR(host->Broadcast(&id, sizeof id, 0));
  status = made->Connect(id);
  if (!status.ok()) options.log.Error(status.message());
  TFHVD_RETURN_IF_ERROR(AgreeOnStatus(host, status));
  *out = std::move(made);
  return Status::Ok();
}

NcclCommunicator::~NcclCommunicator() {
  const CudaScope scope(device_.driver(), device_.context());
  const MutexLock lock(&mutex_);
  if (comm_ == nullptr) return;
  const auto end = Clock::now() + std::chrono::duration<double>(kFinalizeSeconds);
  nccl::Result state = api_.ncclCommFinalize(comm_);
  for (Backoff backoff; state == nccl::kInProgress && Clock::now() < end; backoff.Pause()) {
    if (api_.ncclCommGetAsyncError(comm_, &state) != nccl::kSuccess) break;
  }
  if (state == nccl::kSuccess) {
    api_.ncclCommDestroy(comm_);
  } else {
    api_.ncclCommAbort(comm_);
  }
}

Status NcclCommunicator::Connect(const nccl::UniqueId& id) {
  const CudaScope scope(device_.driver(), device_.context());
  nccl::Result result;
  {
    const MutexLock lock(&mutex_);
    nccl::Config config;
    config.blocking = 0;
    result = api_.ncclCommInitRankConfig(&comm_, size_, id, rank_, &config);
  }
  return Settle("ncclCommInitRankConfig", result);
}

// Waits for a call that continues in the background. The lock is free in between.
Status NcclCommunicator::Settle(const char* name, nccl::Result result) {
  const auto end = Clock::now() + deadline_;
  WaitPacer pacer;
  for (Backoff backoff; result == nccl::kInProgress; backoff.Pause()) {
    TFHVD_RETURN_IF_ERROR(AskWhetherToWait(name, &pacer));
    const MutexLock lock(&mutex_);
    if (!why_.ok()) return why_;
    const nccl::Result asked = api_.ncclCommGetAsyncError(comm_, &result);
    if (asked != nccl::kSuccess) result = asked;
    if (result != nccl::kInProgress || Clock::now() < end) continue;
    why_ = Status::Aborted(
        std::string(name) + " did not end within " +
        std::to_string(static_cast<int>(deadline_.count())) +
        " s: the ranks cannot reach each other. Set NCCL_SOCKET_IFNAME to the network interface "
        "that joins the hosts, or increase TFHVD_GPU_INIT_TIMEOUT_SECONDS. With NCCL_DEBUG=INFO, "
        "NCCL prints more.");
    api_.ncclCommAbort(std::exchange(comm_, nullptr));
    return why_;
  }
  if (result == nccl::kSuccess) return Status::Ok();
  const MutexLock lock(&mutex_);
  return why_.ok() ? NcclFailed(api_, name, result, comm_) : why_;
}

// After an error the call is still in progress: the caller aborts the communicator.
Status NcclCommunicator::AskWhetherToWait(const char* name, WaitPacer* pacer) {
  if (!pacer->Due()) return Status::Ok();
  Wait wait;
  wait.call = name;
  wait.seconds = pacer->waited();
  return OnWait(wait);
}

template <typename Calls>
Status NcclCommunicator::Run(const char* name, const Calls& calls) {
  cuda::Stream stream = nullptr;
  TFHVD_RETURN_IF_ERROR(device_.Flush(&stream));
  const CudaScope scope(device_.driver(), device_.context());
  nccl::Result result;
  {
    const MutexLock lock(&mutex_);
    if (!why_.ok()) return why_;
    result = calls(stream);
  }
  return Settle(name, result);
}

// Makes several calls as one. The group returns their errors, except wrong arguments.
template <typename Calls>
Status NcclCommunicator::RunGroup(const char* name, const Calls& calls) {
  return Run(name, [&](cuda::Stream stream) TFHVD_REQUIRES(mutex_) {
    nccl::Result result = api_.ncclGroupStart();
    if (result == nccl::kSuccess) result = calls(stream);
    const nccl::Result ended = api_.ncclGroupEnd();
    return result == nccl::kSuccess || result == nccl::kInProgress ? ended : result;
  });
}

nccl::Result NcclCommunicator::Operation(const NcclReduction& plan, DType dtype, nccl::RedOp* op) {
  *op = plan.op;
  if (plan.premul == 1.0) return nccl::kSuccess;
  const float single = static_cast<float>(plan.premul);
  const Float16 half = ToFloat16(single);
  const BFloat16 brain = ToBFloat16(single);
  const void* scalar = &plan.premul;
  if (dtype == DType::kFloat32) scalar = &single;
  if (dtype == DType::kFloat16) scalar = &half;
  if (dtype == DType::kBFloat16) scalar = &brain;
  return api_.ncclRedOpCreatePreMulSum(op, const_cast<void*>(scalar), *NcclType(dtype),
                                       nccl::kScalarHostImmediate, comm_);
}

Status NcclCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                   const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  if (count == 0) return Status::Ok();
  const std::optional<NcclReduction> plan =
      PlanNcclReduction(dtype, reduction, size_, /*scale_input=*/true);
  if (!plan.has_value()) return fallback_->AllReduce(in, out, count, dtype, reduction);
  CudaCopies& copies = *device_.copies();
  const bool by_copies = in == out && copies.ScaleAdded(out, count, dtype, plan->before);
  if (plan->before != 1.0 && !by_copies) {
    // Enqueued after the collected copies, which may write `in`.
    cuda::Stream stream = nullptr;
    TFHVD_RETURN_IF_ERROR(device_.Flush(&stream));
    copies.AddScaled(out, dtype, in, dtype, count, plan->before);
    in = out;
  }
  TFHVD_RETURN_IF_ERROR(Run("ncclAllReduce", [&](cuda::Stream stream) TFHVD_REQUIRES(mutex_) {
    nccl::RedOp op = nccl::kSum;
    nccl::Result result = Operation(*plan, dtype, &op);
    if (result != nccl::kSuccess) return result;
    result = api_.ncclAllReduce(in, out, static_cast<size_t>(count), *NcclType(dtype), op, comm_,
                                stream);
    if (plan->premul != 1.0) api_.ncclRedOpDestroy(op, comm_);
    return result;
  }));
  if (plan->after != 1.0) copies.Scale(out, count, dtype, plan->after);
  return Status::Ok();
}

Status NcclCommunicator::AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) {
  if (Sum(bytes) == 0) return Status::Ok();
  // Here, in place means that the input is at the start of the output; for NCCL it means the rank's
  // part of the output.
  if (in == out && size_ > 1) return fallback_->AllGather(in, out, bytes);
  if (AllEqual(bytes)) {
    return Run("ncclAllGather", [&](cuda::Stream stream) TFHVD_REQUIRES(mutex_) {
      return api_.ncclAllGather(in, out, static_cast<size_t>(bytes[0]), nccl::kUint8, comm_,
                                stream);
    });
  }
  return RunGroup("ncclBroadcast", [&](cuda::Stream stream) TFHVD_REQUIRES(mutex_) {
    int64_t offset = 0;
    for (int r = 0; r < size_; ++r) {
      const int64_t n = bytes[static_cast<size_t>(r)];
      char* const address = At(out, offset);
      offset += n;
      if (n == 0) continue;
      const nccl::Result result =
          api_.ncclBroadcast(r == rank_ ? in : address, address, static_cast<size_t>(n),
                             nccl::kUint8, r, comm_, stream);
      if (result != nccl::kSuccess && result != nccl::kInProgress) return result;
    }
    return nccl::kSuccess;
  });
}

Status NcclCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  if (bytes == 0) return Status::Ok();
  return Run("ncclBroadcast", [&](cuda::Stream stream) TFHVD_REQUIRES(mutex_) {
    return api_.ncclBroadcast(buffer, buffer, static_cast<size_t>(bytes), nccl::kUint8, root, comm_,
                              stream);
  });
}

Status NcclCommunicator::ReduceScatter(const void* in, void* out,
                                       const std::vector<int64_t>& counts, DType dtype,
                                       const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  if (Sum(counts) == 0) return Status::Ok();
  const std::optional<NcclReduction> plan =
      PlanNcclReduction(dtype, reduction, size_, /*scale_input=*/false);
  if (!plan.has_value()) return fallback_->ReduceScatter(in, out, counts, dtype, reduction);
  const int64_t item = ItemSize(dtype);
  const bool even = AllEqual(counts);
  const auto calls = [&](cuda::Stream stream) TFHVD_REQUIRES(mutex_) {
    nccl::RedOp op = nccl::kSum;
    nccl::Result result = Operation(*plan, dtype, &op);
    if (result != nccl::kSuccess) return result;
    if (even) {
      result = api_.ncclReduceScatter(in, out, static_cast<size_t>(counts[0]), *NcclType(dtype), op,
                                      comm_, stream);
    }
    int64_t offset = 0;
    for (int r = 0; r < size_ && !even; ++r) {
      const int64_t n = counts[static_cast<size_t>(r)];
      const char* const part = At(in, offset * item);
      offset += n;
      if (n == 0) continue;
      result = api_.ncclReduce(part, out, static_cast<size_t>(n), *NcclType(dtype), op, r, comm_,
                               stream);
      if (result != nccl::kSuccess && result != nccl::kInProgress) break;
    }
    if (plan->premul != 1.0) api_.ncclRedOpDestroy(op, comm_);
    return result;
  };
  TFHVD_RETURN_IF_ERROR(even ? Run("ncclReduceScatter", calls) : RunGroup("ncclReduce", calls));
  const int64_t mine = counts[static_cast<size_t>(rank_)];
  if (plan->after != 1.0) device_.copies()->Scale(out, mine, dtype, plan->after);
  return Status::Ok();
}

Status NcclCommunicator::AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                                  const std::vector<int64_t>& recv_bytes) {
  if (Sum(send_bytes) == 0 && Sum(recv_bytes) == 0) return Status::Ok();
  return RunGroup("ncclSend and ncclRecv", [&](cuda::Stream stream) TFHVD_REQUIRES(mutex_) {
    int64_t sent = 0;
    int64_t received = 0;
    nccl::Result result = nccl::kSuccess;
    const auto good = [&] { return result == nccl::kSuccess || result == nccl::kInProgress; };
    for (int r = 0; r < size_ && good(); ++r) {
      const int64_t to = send_bytes[static_cast<size_t>(r)];
      const int64_t from = recv_bytes[static_cast<size_t>(r)];
      if (to > 0) {
        result =
            api_.ncclSend(At(in, sent), static_cast<size_t>(to), nccl::kUint8, r, comm_, stream);
      }
      if (from > 0 && good()) {
        result = api_.ncclRecv(At(out, received), static_cast<size_t>(from), nccl::kUint8, r, comm_,
                               stream);
      }
      sent += to;
      received += from;
    }
    return result;
  });
}

Status NcclCommunicator::Barrier() {
  cuda::Stream stream = nullptr;
  TFHVD_RETURN_IF_ERROR(device_.Flush(&stream));  // the buffer may be the source of a copy
  char* word = nullptr;
  TFHVD_RETURN_IF_ERROR(device_.Scratch(sizeof(int32_t), &word));
  TFHVD_RETURN_IF_ERROR(
      AllReduce(word, word, 1, DType::kInt32, Reduction{ReduceOp::kMax, 1.0, 1.0}));
  return WaitUntilDone();
}

Status NcclCommunicator::WaitUntilDone() {
  WaitPacer pacer;
  for (Backoff backoff; device_.busy(); backoff.Pause()) {
    TFHVD_RETURN_IF_ERROR(Poll());
    TFHVD_RETURN_IF_ERROR(AskWhetherToWait("NCCL barrier", &pacer));
  }
  return Poll();
}

Status NcclCommunicator::Poll() {
  const MutexLock lock(&mutex_);
  if (!why_.ok()) return why_;
  nccl::Result state = nccl::kSuccess;
  nccl::Result result = api_.ncclCommGetAsyncError(comm_, &state);
  if (result == nccl::kSuccess) result = state;
  if (result == nccl::kSuccess || result == nccl::kInProgress) return Status::Ok();
  return NcclFailed(api_, "a collective on the GPU", result, comm_);
}

void NcclCommunicator::Abort(const Status& why) {
  const CudaScope scope(device_.driver(), device_.context());
  const MutexLock lock(&mutex_);
  if (!why_.ok()) return;
  why_ = why;
  if (comm_ != nullptr) api_.ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace tfhvd
