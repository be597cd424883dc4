// What the executor does for each kind of collective: copy in, call, copy out.
#include <algorithm>
#include <numeric>

#include "cc/base/arithmetic.h"
#include "cc/base/backoff.h"
#include "cc/execute/adasum.h"
#include "cc/execute/executor.h"

namespace tfhvd {
namespace {

// Phases, by Horovod's names.
constexpr const char* kCopyIn = "MEMCPY_IN_FUSION_BUFFER";
constexpr const char* kCopyOut = "MEMCPY_OUT_FUSION_BUFFER";
constexpr const char* kAllReduce = "_ALLREDUCE";
constexpr const char* kAllGather = "_ALLGATHER";
constexpr const char* kBroadcast = "_BCAST";
constexpr const char* kReduceScatter = "_REDUCESCATTER";

// How long memory on an accelerator is waited for, and how long from one attempt to the next.
constexpr double kMemorySeconds = 5.0;
constexpr long kLongestSleepNs = 50000000;

const void* InputOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.inputs[piece.tensor];
}

bool IsPlaceholder(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.placeholder;
}

// Whether this rank has all of the plan's tensors.
bool HasAll(const Plan& plan, const std::vector<Agreed>& agreed) {
  return std::none_of(plan.pieces.begin(), plan.pieces.end(),
                      [&agreed](const Piece& piece) { return IsPlaceholder(piece, agreed); });
}

// Whether the plan's tensor lies in memory that the call can work on.
bool InPlace(const Plan& plan, const std::vector<Agreed>& agreed) {
  return plan.pieces.size() == 1 && HasAll(plan, agreed);
}

// What this rank's tensors are multiplied by before they are added up, where weights differ: 0
// to 1.
double ShareOf(const std::vector<int64_t>& weights, int rank) {
  double sum = 0.0;
  for (int64_t w : weights) sum += static_cast<double>(w);
  return sum > 0.0 ? static_cast<double>(weights[static_cast<size_t>(rank)]) / sum : 0.0;
}

void* OutputOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.outputs[piece.tensor];
}

std::vector<Span> SpansOf(const Plan& plan, const std::vector<Agreed>& agreed) {
  std::vector<Span> spans;
  spans.reserve(plan.pieces.size());
  for (const Piece& piece : plan.pieces) {
    spans.push_back({InputOf(piece, agreed), OutputOf(piece, agreed), piece.bytes});
  }
  return spans;
}

// What every rank brings to an allgather's tensor, or gets of a reducescatter's, and this rank's
// result.
struct Parts {
  std::vector<int64_t> bytes;  // by rank
  void* output = nullptr;
};

int64_t Sum(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

std::vector<int64_t> Times(const std::vector<int64_t>& numbers, int64_t factor) {
  std::vector<int64_t> products;
  for (int64_t n : numbers) products.push_back(n * factor);
  return products;
}

const TensorSpec& SpecOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.request->tensors[piece.tensor];
}

}  // namespace

// Gets memory for a result of so many rows.
Status Executor::AllocateRows(const Piece& piece, std::vector<Agreed>* agreed, int64_t rows,
                              void** output) {
  Entry& entry = (*agreed)[piece.agreed].entry;
  *output = nullptr;
  if (entry.placeholder) return Status::Ok();
  Shape shape = SpecOf(piece, *agreed).shape;
  shape[0] = rows;
  Status status = entry.allocate(piece.tensor, shape, output);
  // An accelerator's memory comes back while the framework's other operations end.
  const WaitPacer pacer;
  Backoff backoff(kLongestSleepNs, Backoff::kSleepAtOnce);
  while (status.code() == StatusCode::kUnavailable && device_ != host_ &&
         pacer.waited() < kMemorySeconds) {
    backoff.Pause();
    TFHVD_RETURN_IF_ERROR(OnDeviceWait(pacer.waited()));
    status = entry.allocate(piece.tensor, shape, output);
  }
  TFHVD_RETURN_IF_ERROR(status);
  // On an accelerator the memory may be new to us alone: what the framework did in it before is
  // still on its stream.
  return device_->AwaitStream(entry.extras().stream);
}

Status Executor::CopyIn(const Plan& plan, const std::vector<Agreed>& agreed, double share,
                        char* buffer) {
  const Phase phase(this, kCopyIn);
  for (const Piece& piece : plan.pieces) {
    TFHVD_RETURN_IF_ERROR(
        IsPlaceholder(piece, agreed)
            ? FillForJoined(buffer, piece.bytes, plan.dtype, plan.reduction.op)
            : CopyShare(buffer, InputOf(piece, agreed), piece.bytes, plan.dtype, share));
    buffer += piece.bytes;
  }
  return Status::Ok();
}

// What a rank of no share has may be anything, NaN included: it brings zeros.
Status Executor::CopyShare(void* to, const void* from, int64_t bytes, DType dtype, double share) {
  if (share == 0.0) return device_->Zero(to, bytes);
  if (share == 1.0) return device_->Copy(to, from, bytes);
  return device_->CopyScaled(to, from, bytes / ItemSize(dtype), dtype, share);
}

// What a rank that has joined brings to an allreduce: what leaves the others' result as it is.
Status Executor::FillForJoined(void* to, int64_t bytes, DType dtype, ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return device_->Zero(to, bytes);
  std::vector<char> neutral(static_cast<size_t>(bytes));
  FillNeutral(neutral.data(), bytes / ItemSize(dtype), dtype, op);
  return device_->CopyFromHost(to, neutral.data(), bytes);
}

Status Executor::CopyOut(const Plan& plan, const char* buffer, const std::vector<Agreed>& agreed) {
  const Phase phase(this, kCopyOut);
  for (const Piece& piece : plan.pieces) {
    if (!IsPlaceholder(piece, agreed)) {
      TFHVD_RETURN_IF_ERROR(device_->Copy(OutputOf(piece, agreed), buffer, piece.bytes));
    }
    buffer += piece.bytes;
  }
  return Status::Ok();
}

Status Executor::AllReduce(const Plan& plan, Communicator* communicator,
                           std::vector<Agreed>* agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  Reduction reduction = plan.reduction;
  double share = 1.0;
  if (!plan.weights.empty()) {
    share = ShareOf(plan.weights, communicator->rank());
    reduction.op = ReduceOp::kSum;  // of the shares
  }
  if (InPlace(plan, *agreed)) {
    const void* in = InputOf(plan.pieces[0], *agreed);
    void* const out = OutputOf(plan.pieces[0], *agreed);
    if (share != 1.0) {
      const Phase phase(this, kCopyIn);
      TFHVD_RETURN_IF_ERROR(CopyShare(out, in, plan.bytes, plan.dtype, share));
      in = out;
    }
    const Phase phase(this, communicator->name(), kAllReduce);
    return communicator->AllReduce(in, out, count, plan.dtype, reduction);
  }
  if (share == 1.0 && communicator->takes_spans(plan.bytes) && HasAll(plan, *agreed)) {
    const Phase phase(this, communicator->name(), kAllReduce);
    return communicator->AllReduceSpans(SpansOf(plan, *agreed), plan.dtype, reduction);
  }
  char* buffer = nullptr;
  TFHVD_RETURN_IF_ERROR(device_->Scratch(plan.bytes, &buffer));
  TFHVD_RETURN_IF_ERROR(CopyIn(plan, *agreed, share, buffer));
  {
    const Phase phase(this, communicator->name(), kAllReduce);
    TFHVD_RETURN_IF_ERROR(communicator->AllReduce(buffer, buffer, count, plan.dtype, reduction));
  }
  return CopyOut(plan, buffer, *agreed);
}

// On the host, wherever the tensor is: never fused, for each tensor has its own lengths.
Status Executor::RunAdasum(const Plan& plan, const std::vector<Agreed>& agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const Piece& piece = plan.pieces[0];
  Communicator* communicator = communicators_.at(plan.process_set);
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  const Phase phase(this, communicator->name(), "_ADASUM");
  if (IsPlaceholder(piece, agreed)) {
    std::vector<char> zeros(static_cast<size_t>(plan.bytes));  // combine with anything to that
    return Adasum(communicator, zeros.data(), zeros.data(), count, plan.dtype, plan.reduction);
  }
  const void* in = InputOf(piece, agreed);
  void* out = OutputOf(piece, agreed);
  if (plan.device == DeviceKind::kHost) {
    return Adasum(communicator, in, out, count, plan.dtype, plan.reduction);
  }
  std::vector<char> copy(static_cast<size_t>(plan.bytes));
  TFHVD_RETURN_IF_ERROR(device_->CopyToHost(copy.data(), in, plan.bytes));
  TFHVD_RETURN_IF_ERROR(
      Adasum(communicator, copy.data(), copy.data(), count, plan.dtype, plan.reduction));
  return device_->CopyFromHost(out, copy.data(), plan.bytes);
}

Status Executor::Broadcast(const Plan& plan, Communicator* communicator,
                           std::vector<Agreed>* agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const std::vector<int>& members = *sets_->Find(plan.process_set);
  const auto found = std::lower_bound(members.begin(), members.end(), plan.root);
  const int root = static_cast<int>(found - members.begin());
  const bool at_root = communicator->rank() == root;
  if (at_root) {
    for (const Piece& piece : plan.pieces) {
      const void* input = InputOf(piece, *agreed);
      void* output = OutputOf(piece, *agreed);
      if (input != output) TFHVD_RETURN_IF_ERROR(device_->Copy(output, input, piece.bytes));
    }
  }
  if (InPlace(plan, *agreed)) {
    const Phase phase(this, communicator->name(), kBroadcast);
    return communicator->Broadcast(OutputOf(plan.pieces[0], *agreed), plan.bytes, root);
  }
  char* buffer = nullptr;
  TFHVD_RETURN_IF_ERROR(device_->Scratch(plan.bytes, &buffer));
  if (at_root) TFHVD_RETURN_IF_ERROR(CopyIn(plan, *agreed, 1.0, buffer));
  {
    const Phase phase(this, communicator->name(), kBroadcast);
    TFHVD_RETURN_IF_ERROR(communicator->Broadcast(buffer, plan.bytes, root));
  }
  return at_root ? Status::Ok() : CopyOut(plan, buffer, *agreed);
}

Status Executor::AllGather(const Plan& plan, Communicator* communicator,
                           std::vector<Agreed>* agreed) {
  const int me = communicator->rank();
  const int size = communicator->size();
  std::vector<Parts> gathered(plan.pieces.size());
  std::vector<int64_t> bytes(size, 0);  // of all pieces, by rank
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    const Piece& piece = plan.pieces[p];
    const Agreed& gather = (*agreed)[piece.agreed];
    const auto tensor = static_cast<size_t>(piece.tensor);
    const std::vector<int64_t> rows = gather.decision.RowsOfRanks(tensor);
    if (gather.entry.extras().gathers) {
      gather.entry.extras().gathers(piece.tensor, gather.decision.first_dims[tensor]);
    }
    gathered[p].bytes = Times(rows, RowBytes(SpecOf(piece, *agreed)));
    TFHVD_RETURN_IF_ERROR(AllocateRows(piece, agreed, Sum(rows), &gathered[p].output));
    for (int r = 0; r < size; ++r) bytes[r] += gathered[p].bytes[r];
  }
  if (plan.bytes == 0) return Status::Ok();
  if (InPlace(plan, *agreed)) {
    const Phase phase(this, communicator->name(), kAllGather);
    return communicator->AllGather(InputOf(plan.pieces[0], *agreed), gathered[0].output, bytes);
  }

  // The buffer holds this rank's parts of all pieces, then what the ranks sent: for each rank its
  // parts.
  char* buffer = nullptr;
  TFHVD_RETURN_IF_ERROR(device_->Scratch(bytes[me] + plan.bytes, &buffer));
  char* at = buffer;
  {
    const Phase phase(this, kCopyIn);
    for (size_t p = 0; p < plan.pieces.size(); ++p) {
      TFHVD_RETURN_IF_ERROR(
          device_->Copy(at, InputOf(plan.pieces[p], *agreed), gathered[p].bytes[me]));
      at += gathered[p].bytes[me];
    }
  }
  const char* from = at;
  {
    const Phase phase(this, communicator->name(), kAllGather);
    TFHVD_RETURN_IF_ERROR(communicator->AllGather(buffer, at, bytes));
  }
  const Phase phase(this, kCopyOut);
  std::vector<char*> to;
  for (const Parts& g : gathered) to.push_back(static_cast<char*>(g.output));
  for (int r = 0; r < size; ++r) {
    for (size_t p = 0; p < plan.pieces.size(); ++p) {
      if (to[p] != nullptr) {
        TFHVD_RETURN_IF_ERROR(device_->Copy(to[p], from, gathered[p].bytes[r]));
        to[p] += gathered[p].bytes[r];
      }
      from += gathered[p].bytes[r];
    }
  }
  return Status::Ok();
}

Status Executor::ReduceScatter(const Plan& plan, Communicator* communicator,
                               std::vector<Agreed>* agreed) {
  const int me = communicator->rank();
  const int size = communicator->size();
  std::vector<Parts> scattered(plan.pieces.size());
  std::vector<int64_t> counts(size, 0);  // of all pieces, by rank
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    const TensorSpec& spec = SpecOf(plan.pieces[p], *agreed);
    std::vector<int64_t> rows;
    for (int r = 0; r < size; ++r) rows.push_back(RowsOfPart(spec.shape[0], size, r));
    scattered[p].bytes = Times(rows, RowBytes(spec));
    TFHVD_RETURN_IF_ERROR(AllocateRows(plan.pieces[p], agreed, rows[me], &scattered[p].output));
    for (int r = 0; r < size; ++r) counts[r] += scattered[p].bytes[r] / ItemSize(plan.dtype);
  }
  if (plan.bytes == 0) return Status::Ok();
  if (plan.pieces.size() == 1) {
    const Phase phase(this, communicator->name(), kReduceScatter);
    return communicator->ReduceScatter(InputOf(plan.pieces[0], *agreed), scattered[0].output,
                                       counts, plan.dtype, plan.reduction);
  }

  // The buffer holds for each rank its parts of all pieces, then what this rank gets.
  char* buffer = nullptr;
  TFHVD_RETURN_IF_ERROR(device_->Scratch(plan.bytes + counts[me] * ItemSize(plan.dtype), &buffer));
  char* to = buffer;
  std::vector<const char*> from;
  for (const Piece& piece : plan.pieces) {
    from.push_back(static_cast<const char*>(InputOf(piece, *agreed)));
  }
  {
    const Phase phase(this, kCopyIn);
    for (int r = 0; r < size; ++r) {
      for (size_t p = 0; p < plan.pieces.size(); ++p) {
        TFHVD_RETURN_IF_ERROR(device_->Copy(to, from[p], scattered[p].bytes[r]));
        from[p] += scattered[p].bytes[r];
        to += scattered[p].bytes[r];
      }
    }
  }
  const char* result = to;
  {
    const Phase phase(this, communicator->name(), kReduceScatter);
    TFHVD_RETURN_IF_ERROR(
        communicator->ReduceScatter(buffer, to, counts, plan.dtype, plan.reduction));
  }
  const Phase phase(this, kCopyOut);
  for (const Parts& part : scattered) {
    TFHVD_RETURN_IF_ERROR(device_->Copy(part.output, result, part.bytes[me]));
    result += part.bytes[me];
  }
  return Status::Ok();
}

Status Executor::AllToAll(const Plan& plan, Communicator* communicator,
                          std::vector<Agreed>* agreed) {
  const int size = communicator->size();
  const Piece& piece = plan.pieces[0];  // never fused
  const Entry& entry = (*agreed)[piece.agreed].entry;
  const TensorSpec& spec = SpecOf(piece, *agreed);
  std::vector<int64_t> sent = entry.extras().splits;
  if (sent.empty()) sent.assign(size, spec.shape[0] / size);
  const Phase phase(this, communicator->name(), "_ALLTOALL");
  // Only the ranks of the set need to know how many rows travel between them, so they tell each
  // other here, wherever the tensors are, and not all of it to rank 0.
  std::vector<int64_t> received(size);
  const std::vector<int64_t> one(size, sizeof(int64_t));
  TFHVD_RETURN_IF_ERROR(
      communicators_.at(plan.process_set)->AllToAll(sent.data(), one, received.data(), one));
  const auto& received_splits = entry.extras().received_splits;
  if (received_splits) received_splits(received);
  void* output = nullptr;
  TFHVD_RETURN_IF_ERROR(AllocateRows(piece, agreed, Sum(received), &output));
  const int64_t row = RowBytes(spec);
  return communicator->AllToAll(InputOf(piece, *agreed), Times(sent, row), output,
                                Times(received, row));
}

}  // namespace tfhvd
