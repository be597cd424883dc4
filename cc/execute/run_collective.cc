#include "cc/execute/run_collective.h"

#include <algorithm>
#include <string>

#include "cc/collectives/adasum.h"
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

// The values of a rank with share 0 are arbitrary, NaN included, so it contributes zeros.
Status CopyShare(const PlanContext& context, void* to, const void* from, int64_t bytes, DType dtype,
                 double share) {
  if (share == 0.0) return context.device->Zero(to, bytes);
  if (share == 1.0) return context.device->Copy(to, from, bytes);
  return context.device->CopyScaled(to, from, bytes / ItemSize(dtype), dtype, share);
}

// Fills in the contribution of a rank that has joined: values that do not change the others'
// result.
Status FillForJoined(const PlanContext& context, void* to, int64_t bytes, DType dtype,
                     ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return context.device->Zero(to, bytes);
  std::vector<char> neutral(static_cast<size_t>(std::min(bytes, kFillBytes)));
  FillNeutral(neutral.data(), static_cast<int64_t>(neutral.size()) / ItemSize(dtype), dtype, op);
  for (int64_t at = 0; at < bytes; at += kFillBytes) {
    TFHVD_RETURN_IF_ERROR(context.device->CopyFromHost(static_cast<char*>(to) + at, neutral.data(),
                                                       std::min(kFillBytes, bytes - at)));
  }
  return Status::Ok();
}

Status CopyIn(const PlanContext& context, const Plan& plan, const std::vector<Agreed>& agreed,
              double share, char* buffer) {
  const Phase phase(context.phases, kCopyIn);
  for (const Piece& piece : plan.pieces) {
    TFHVD_RETURN_IF_ERROR(
        IsPlaceholder(piece, agreed)
            ? FillForJoined(context, buffer, piece.bytes, plan.dtype, plan.reduction.op)
            : CopyShare(context, buffer, InputOf(piece, agreed), piece.bytes, plan.dtype, share));
    buffer += piece.bytes;
  }
  return Status::Ok();
}

Status CopyOut(const PlanContext& context, const Plan& plan, const char* buffer,
               const std::vector<Agreed>& agreed) {
  const Phase phase(context.phases, kCopyOut);
  for (const Piece& piece : plan.pieces) {
    if (!IsPlaceholder(piece, agreed)) {
      TFHVD_RETURN_IF_ERROR(context.device->Copy(OutputOf(piece, agreed), buffer, piece.bytes));
    }
    buffer += piece.bytes;
  }
  return Status::Ok();
}

Status AllReduce(const PlanContext& context, const Plan& plan, const PlanMemory& memory,
                 const std::vector<Agreed>& agreed) {
  Communicator* const communicator = context.communicator;
  if (plan.bytes == 0) return Status::Ok();
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  Reduction reduction = plan.reduction;
  const double share = ShareOf(plan.weights, communicator->rank());
  if (!plan.weights.empty()) reduction.op = ReduceOp::kSum;  // the sum of the shares
  if (InPlace(plan, agreed)) {
    const void* in = InputOf(plan.pieces[0], agreed);
    void* const out = OutputOf(plan.pieces[0], agreed);
    if (share != 1.0) {
      const Phase phase(context.phases, kCopyIn);
      TFHVD_RETURN_IF_ERROR(CopyShare(context, out, in, plan.bytes, plan.dtype, share));
      in = out;
    }
    const Phase phase(context.phases, communicator->name(), kAllReduce);
    return communicator->AllReduce(in, out, count, plan.dtype, reduction);
  }
  if (memory.buffer == nullptr) {
    const Phase phase(context.phases, communicator->name(), kAllReduce);
    return communicator->AllReduceSpans(SpansOf(plan, agreed), plan.dtype, reduction);
  }
  TFHVD_RETURN_IF_ERROR(CopyIn(context, plan, agreed, share, memory.buffer));
  {
    const Phase phase(context.phases, communicator->name(), kAllReduce);
    TFHVD_RETURN_IF_ERROR(
        communicator->AllReduce(memory.buffer, memory.buffer, count, plan.dtype, reduction));
  }
  return CopyOut(context, plan, memory.buffer, agreed);
}

// Runs on the host for tensors on any device. Never fused, because each tensor has another norm.
Status RunAdasum(const PlanContext& context, const Plan& plan, PlanMemory* memory,
                 const std::vector<Agreed>& agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const Piece& piece = plan.pieces[0];
  Communicator* const communicator = context.host;
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  const Phase phase(context.phases, communicator->name(), "_ADASUM");
  const bool here = !IsPlaceholder(piece, agreed);
  const void* in = here ? InputOf(piece, agreed) : nullptr;
  void* out = here ? OutputOf(piece, agreed) : nullptr;
  const bool copies = !memory->copy.empty();
  if (copies && here) {
    TFHVD_RETURN_IF_ERROR(context.device->CopyToHost(memory->copy.data(), in, plan.bytes));
  }
  void* const on_host = copies ? memory->copy.data() : out;
  TFHVD_RETURN_IF_ERROR(Adasum(communicator, copies ? on_host : in, on_host, count, plan.dtype,
                               plan.reduction, &memory->adasum));
  return copies && here ? context.device->CopyFromHost(out, on_host, plan.bytes) : Status::Ok();
}

Status Broadcast(const PlanContext& context, const Plan& plan, const PlanMemory& memory,
                 const std::vector<Agreed>& agreed) {
  Communicator* const communicator = context.communicator;
  if (plan.bytes == 0) return Status::Ok();
  const std::vector<int>& members = *context.sets->Find(plan.process_set);
  const auto found = std::lower_bound(members.begin(), members.end(), plan.root);
  const int root = static_cast<int>(found - members.begin());
  const bool at_root = communicator->rank() == root;
  if (at_root) {
    for (const Piece& piece : plan.pieces) {
      const void* input = InputOf(piece, agreed);
      void* output = OutputOf(piece, agreed);
      if (input != output) TFHVD_RETURN_IF_ERROR(context.device->Copy(output, input, piece.bytes));
    }
  }
  if (memory.buffer == nullptr) {
    const Phase phase(context.phases, communicator->name(), kBroadcast);
    return communicator->Broadcast(OutputOf(plan.pieces[0], agreed), plan.bytes, root);
  }
  if (at_root) TFHVD_RETURN_IF_ERROR(CopyIn(context, plan, agreed, 1.0, memory.buffer));
  {
    const Phase phase(context.phases, communicator->name(), kBroadcast);
    TFHVD_RETURN_IF_ERROR(communicator->Broadcast(memory.buffer, plan.bytes, root));
  }
  return at_root ? Status::Ok() : CopyOut(context, plan, memory.buffer, agreed);
}

Status AllGather(const PlanContext& context, const Plan& plan, const PlanMemory& memory,
                 const std::vector<Agreed>& agreed) {
  Communicator* const communicator = context.communicator;
  if (plan.bytes == 0) return Status::Ok();
  const int me = communicator->rank();
  if (memory.buffer == nullptr) {
    const Phase phase(context.phases, communicator->name(), kAllGather);
    return communicator->AllGather(InputOf(plan.pieces[0], agreed),
                                   OutputOf(plan.pieces[0], agreed), memory.of_all);
  }

  // Layout of the buffer: this rank's parts of all pieces, then for each rank all parts that it
  // sent.
  char* at = memory.buffer;
  {
    const Phase phase(context.phases, kCopyIn);
    for (size_t p = 0; p < plan.pieces.size(); ++p) {
      TFHVD_RETURN_IF_ERROR(
          context.device->Copy(at, InputOf(plan.pieces[p], agreed), memory.bytes[p][me]));
      at += memory.bytes[p][me];
    }
  }
  const char* from = at;
  {
    const Phase phase(context.phases, communicator->name(), kAllGather);
    TFHVD_RETURN_IF_ERROR(communicator->AllGather(memory.buffer, at, memory.of_all));
  }
  const Phase phase(context.phases, kCopyOut);
  std::vector<char*> to;
  for (const Piece& piece : plan.pieces) {
    const bool here = !IsPlaceholder(piece, agreed);
    to.push_back(here ? static_cast<char*>(OutputOf(piece, agreed)) : nullptr);
  }
  for (int r = 0; r < communicator->size(); ++r) {
    for (size_t p = 0; p < plan.pieces.size(); ++p) {
      if (to[p] != nullptr) {
        TFHVD_RETURN_IF_ERROR(context.device->Copy(to[p], from, memory.bytes[p][r]));
        to[p] += memory.bytes[p][r];
      }
      from += memory.bytes[p][r];
    }
  }
  return Status::Ok();
}

Status ReduceScatter(const PlanContext& context, const Plan& plan, const PlanMemory& memory,
                     const std::vector<Agreed>& agreed) {
  Communicator* const communicator = context.communicator;
  if (plan.bytes == 0) return Status::Ok();
  const int me = communicator->rank();
  if (memory.buffer == nullptr) {
    const Phase phase(context.phases, communicator->name(), kReduceScatter);
    return communicator->ReduceScatter(InputOf(plan.pieces[0], agreed),
                                       OutputOf(plan.pieces[0], agreed), memory.of_all, plan.dtype,
                                       plan.reduction);
  }

  // Layout of the buffer: for each rank its parts of all pieces, then the parts that this rank
  // receives.
  char* to = memory.buffer;
  std::vector<const char*> from;
  for (const Piece& piece : plan.pieces) {
    from.push_back(static_cast<const char*>(InputOf(piece, agreed)));
  }
  {
    const Phase phase(context.phases, kCopyIn);
    for (int r = 0; r < communicator->size(); ++r) {
      for (size_t p = 0; p < plan.pieces.size(); ++p) {
        TFHVD_RETURN_IF_ERROR(context.device->Copy(to, from[p], memory.bytes[p][r]));
        from[p] += memory.bytes[p][r];
        to += memory.bytes[p][r];
      }
    }
  }
  const char* result = to;
  {
    const Phase phase(context.phases, communicator->name(), kReduceScatter);
    TFHVD_RETURN_IF_ERROR(
        communicator->ReduceScatter(memory.buffer, to, memory.of_all, plan.dtype, plan.reduction));
  }
  const Phase phase(context.phases, kCopyOut);
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    TFHVD_RETURN_IF_ERROR(
        context.device->Copy(OutputOf(plan.pieces[p], agreed), result, memory.bytes[p][me]));
    result += memory.bytes[p][me];
  }
  return Status::Ok();
}

Status AllToAll(const PlanContext& context, const Plan& plan, const PlanMemory& memory,
                const std::vector<Agreed>& agreed) {
  Communicator* const communicator = context.communicator;
  const Piece& piece = plan.pieces[0];  // never fused
  const int64_t row = RowBytes(SpecOf(piece, agreed));
  const Phase phase(context.phases, communicator->name(), "_ALLTOALL");
  return communicator->AllToAll(InputOf(piece, agreed), Times(memory.sent, row),
                                OutputOf(piece, agreed), Times(memory.received, row));
}

}  // namespace

Status RunCollective(const PlanContext& context, const Plan& plan,
                     const std::vector<Agreed>& agreed, PlanMemory* memory) {
  switch (plan.kind) {
    case Collective::kAllReduce:
      return AllReduce(context, plan, *memory, agreed);
    case Collective::kAdasum:
      return RunAdasum(context, plan, memory, agreed);
    case Collective::kBroadcast:
      return Broadcast(context, plan, *memory, agreed);
    case Collective::kAllGather:
      return AllGather(context, plan, *memory, agreed);
    case Collective::kBarrier: {
      const Phase phase(context.phases, context.communicator->name(), "_BARRIER");
      return context.communicator->Barrier();
    }
    case Collective::kReduceScatter:
      return ReduceScatter(context, plan, *memory, agreed);
    case Collective::kAllToAll:
      return AllToAll(context, plan, *memory, agreed);
    case Collective::kJoin:
    case Collective::kAddProcessSet:
    case Collective::kRemoveProcessSet:
      break;  // they move no data
  }
  return Status::Internal("there is no collective of number " +
                          std::to_string(static_cast<int>(plan.kind)));
}

}  // namespace tfhvd
