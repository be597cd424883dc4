// The part of the executor for each kind of collective: copy in, call, copy out.
#include <algorithm>

#include "cc/collectives/adasum.h"
#include "cc/execute/executor.h"
#include "cc/execute/pieces.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {
namespace {

// Phases, by Horovod's names.
constexpr const char* kCopyIn = "MEMCPY_IN_FUSION_BUFFER";
constexpr const char* kCopyOut = "MEMCPY_OUT_FUSION_BUFFER";
constexpr const char* kAllReduce = "_ALLREDUCE";
constexpr const char* kAllGather = "_ALLGATHER";
constexpr const char* kBroadcast = "_BCAST";
constexpr const char* kReduceScatter = "_REDUCESCATTER";

// The size of the pieces in which a joined rank's contribution is filled in.
constexpr int64_t kFillBytes = 64 << 10;

std::vector<Span> SpansOf(const Plan& plan, const std::vector<Agreed>& agreed) {
  std::vector<Span> spans;
  spans.reserve(plan.pieces.size());
  for (const Piece& piece : plan.pieces) {
    spans.push_back({InputOf(piece, agreed), OutputOf(piece, agreed), piece.bytes});
  }
  return spans;
}

}  // namespace

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

// The values of a rank with share 0 are arbitrary, NaN included, so it contributes zeros.
Status Executor::CopyShare(void* to, const void* from, int64_t bytes, DType dtype, double share) {
  if (share == 0.0) return device_->Zero(to, bytes);
  if (share == 1.0) return device_->Copy(to, from, bytes);
  return device_->CopyScaled(to, from, bytes / ItemSize(dtype), dtype, share);
}

// Fills in the contribution of a rank that has joined: values that do not change the others'
// result.
Status Executor::FillForJoined(void* to, int64_t bytes, DType dtype, ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return device_->Zero(to, bytes);
  std::vector<char> neutral(static_cast<size_t>(std::min(bytes, kFillBytes)));
  FillNeutral(neutral.data(), static_cast<int64_t>(neutral.size()) / ItemSize(dtype), dtype, op);
  for (int64_t at = 0; at < bytes; at += kFillBytes) {
    TFHVD_RETURN_IF_ERROR(device_->CopyFromHost(static_cast<char*>(to) + at, neutral.data(),
                                                std::min(kFillBytes, bytes - at)));
  }
  return Status::Ok();
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

Status Executor::AllReduce(const Plan& plan, Communicator* communicator, const Room& room,
                           const std::vector<Agreed>& agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  Reduction reduction = plan.reduction;
  const double share = ShareOf(plan.weights, communicator->rank());
  if (!plan.weights.empty()) reduction.op = ReduceOp::kSum;  // the sum of the shares
  if (InPlace(plan, agreed)) {
    const void* in = InputOf(plan.pieces[0], agreed);
    void* const out = OutputOf(plan.pieces[0], agreed);
    if (share != 1.0) {
      const Phase phase(this, kCopyIn);
      TFHVD_RETURN_IF_ERROR(CopyShare(out, in, plan.bytes, plan.dtype, share));
      in = out;
    }
    const Phase phase(this, communicator->name(), kAllReduce);
    return communicator->AllReduce(in, out, count, plan.dtype, reduction);
  }
  if (room.buffer == nullptr) {
    const Phase phase(this, communicator->name(), kAllReduce);
    return communicator->AllReduceSpans(SpansOf(plan, agreed), plan.dtype, reduction);
  }
  TFHVD_RETURN_IF_ERROR(CopyIn(plan, agreed, share, room.buffer));
  {
    const Phase phase(this, communicator->name(), kAllReduce);
    TFHVD_RETURN_IF_ERROR(
        communicator->AllReduce(room.buffer, room.buffer, count, plan.dtype, reduction));
  }
  return CopyOut(plan, room.buffer, agreed);
}

// Runs on the host for tensors on any device. Never fused, because each tensor has another norm.
Status Executor::RunAdasum(const Plan& plan, Room* room, const std::vector<Agreed>& agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const Piece& piece = plan.pieces[0];
  Communicator* communicator = communicators_.at(plan.process_set);
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  const Phase phase(this, communicator->name(), "_ADASUM");
  const bool here = !IsPlaceholder(piece, agreed);
  const void* in = here ? InputOf(piece, agreed) : nullptr;
  void* out = here ? OutputOf(piece, agreed) : nullptr;
  const bool copies = !room->copy.empty();
  if (copies && here) {
    TFHVD_RETURN_IF_ERROR(device_->CopyToHost(room->copy.data(), in, plan.bytes));
  }
  void* const on_host = copies ? room->copy.data() : out;
  TFHVD_RETURN_IF_ERROR(Adasum(communicator, copies ? on_host : in, on_host, count, plan.dtype,
                               plan.reduction, &room->adasum));
  return copies && here ? device_->CopyFromHost(out, on_host, plan.bytes) : Status::Ok();
}

Status Executor::Broadcast(const Plan& plan, Communicator* communicator, const Room& room,
                           const std::vector<Agreed>& agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const std::vector<int>& members = *sets_->Find(plan.process_set);
  const auto found = std::lower_bound(members.begin(), members.end(), plan.root);
  const int root = static_cast<int>(found - members.begin());
  const bool at_root = communicator->rank() == root;
  if (at_root) {
    for (const Piece& piece : plan.pieces) {
      const void* input = InputOf(piece, agreed);
      void* output = OutputOf(piece, agreed);
      if (input != output) TFHVD_RETURN_IF_ERROR(device_->Copy(output, input, piece.bytes));
    }
  }
  if (room.buffer == nullptr) {
    const Phase phase(this, communicator->name(), kBroadcast);
    return communicator->Broadcast(OutputOf(plan.pieces[0], agreed), plan.bytes, root);
  }
  if (at_root) TFHVD_RETURN_IF_ERROR(CopyIn(plan, agreed, 1.0, room.buffer));
  {
    const Phase phase(this, communicator->name(), kBroadcast);
    TFHVD_RETURN_IF_ERROR(communicator->Broadcast(room.buffer, plan.bytes, root));
  }
  return at_root ? Status::Ok() : CopyOut(plan, room.buffer, agreed);
}

Status Executor::AllGather(const Plan& plan, Communicator* communicator, const Room& room,
                           const std::vector<Agreed>& agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const int me = communicator->rank();
  if (room.buffer == nullptr) {
    const Phase phase(this, communicator->name(), kAllGather);
    return communicator->AllGather(InputOf(plan.pieces[0], agreed),
                                   OutputOf(plan.pieces[0], agreed), room.of_all);
  }

  // Layout of the buffer: this rank's parts of all pieces, then for each rank all parts that it
  // sent.
  char* at = room.buffer;
  {
    const Phase phase(this, kCopyIn);
    for (size_t p = 0; p < plan.pieces.size(); ++p) {
      TFHVD_RETURN_IF_ERROR(device_->Copy(at, InputOf(plan.pieces[p], agreed), room.bytes[p][me]));
      at += room.bytes[p][me];
    }
  }
  const char* from = at;
  {
    const Phase phase(this, communicator->name(), kAllGather);
    TFHVD_RETURN_IF_ERROR(communicator->AllGather(room.buffer, at, room.of_all));
  }
  const Phase phase(this, kCopyOut);
  std::vector<char*> to;
  for (const Piece& piece : plan.pieces) {
    const bool here = !IsPlaceholder(piece, agreed);
    to.push_back(here ? static_cast<char*>(OutputOf(piece, agreed)) : nullptr);
  }
  for (int r = 0; r < communicator->size(); ++r) {
    for (size_t p = 0; p < plan.pieces.size(); ++p) {
      if (to[p] != nullptr) {
        TFHVD_RETURN_IF_ERROR(device_->Copy(to[p], from, room.bytes[p][r]));
        to[p] += room.bytes[p][r];
      }
      from += room.bytes[p][r];
    }
  }
  return Status::Ok();
}

Status Executor::ReduceScatter(const Plan& plan, Communicator* communicator, const Room& room,
                               const std::vector<Agreed>& agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const int me = communicator->rank();
  if (room.buffer == nullptr) {
    const Phase phase(this, communicator->name(), kReduceScatter);
    return communicator->ReduceScatter(InputOf(plan.pieces[0], agreed),
                                       OutputOf(plan.pieces[0], agreed), room.of_all, plan.dtype,
                                       plan.reduction);
  }

  // Layout of the buffer: for each rank its parts of all pieces, then the parts that this rank
  // receives.
  char* to = room.buffer;
  std::vector<const char*> from;
  for (const Piece& piece : plan.pieces) {
    from.push_back(static_cast<const char*>(InputOf(piece, agreed)));
  }
  {
    const Phase phase(this, kCopyIn);
    for (int r = 0; r < communicator->size(); ++r) {
      for (size_t p = 0; p < plan.pieces.size(); ++p) {
        TFHVD_RETURN_IF_ERROR(device_->Copy(to, from[p], room.bytes[p][r]));
        from[p] += room.bytes[p][r];
        to += room.bytes[p][r];
      }
    }
  }
  const char* result = to;
  {
    const Phase phase(this, communicator->name(), kReduceScatter);
    TFHVD_RETURN_IF_ERROR(
        communicator->ReduceScatter(room.buffer, to, room.of_all, plan.dtype, plan.reduction));
  }
  const Phase phase(this, kCopyOut);
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    TFHVD_RETURN_IF_ERROR(
        device_->Copy(OutputOf(plan.pieces[p], agreed), result, room.bytes[p][me]));
    result += room.bytes[p][me];
  }
  return Status::Ok();
}

Status Executor::AllToAll(const Plan& plan, Communicator* communicator, const Room& room,
                          const std::vector<Agreed>& agreed) {
  const Piece& piece = plan.pieces[0];  // never fused
  const int64_t row = RowBytes(SpecOf(piece, agreed));
  const Phase phase(this, communicator->name(), "_ALLTOALL");
  return communicator->AllToAll(InputOf(piece, agreed), Times(room.sent, row),
                                OutputOf(piece, agreed), Times(room.received, row));
}

}  // namespace tfhvd
