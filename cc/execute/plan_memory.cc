#include "cc/execute/plan_memory.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "cc/base/backoff.h"
#include "cc/collectives/adasum.h"
#include "cc/execute/pieces.h"

namespace tfhvd {
namespace {

// How long to wait for memory on an accelerator, and how long at most between two attempts.
constexpr double kMemorySeconds = 5.0;
constexpr long kLongestSleepNs = 50000000;

int64_t Sum(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// Returns whether a rank may lack memory for the plan; equal on all ranks. The buffer of small
// reductions and broadcasts exists from the start, and so do their results.
bool MayLack(const Plan& plan) {
  switch (plan.kind) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kAdasum:
      return plan.bytes > 0;
    case Collective::kAllReduce:
    case Collective::kBroadcast:
      return plan.bytes > Device::kReserved;
    default:
      return false;
  }
}

Status Allocate(const Entry& entry, int tensor, const Shape& shape, void** output) {
  try {
    return entry.allocate(tensor, shape, output);
  } catch (const std::bad_alloc&) {
    return Status::Unavailable("There is no memory for a result.");
  }
}

Status GetBuffer(const PlanContext& context, int64_t bytes, PlanMemory* memory) {
  if (bytes == 0) return Status::Ok();
  const Status status = context.device->Scratch(bytes, &memory->buffer);
  if (!status.ok() && status.code() != StatusCode::kUnavailable) return status;
  memory->Note(bytes, status);
  return Status::Ok();
}

// Gets memory for a result of `rows` rows.
Status AllocateRows(const PlanContext& context, const Piece& piece, std::vector<Agreed>* agreed,
                    int64_t rows, PlanMemory* memory) {
  Entry& entry = (*agreed)[piece.agreed].entry;
  if (entry.placeholder) return Status::Ok();
  const TensorSpec& spec = SpecOf(piece, *agreed);
  Shape shape = spec.shape;
  shape[0] = rows;
  void* output = nullptr;
  Status status = Allocate(entry, piece.tensor, shape, &output);
  // An accelerator's memory is freed as the framework's other operations end.
  const WaitPacer pacer;
  Backoff backoff(kLongestSleepNs, Backoff::kSleepAtOnce);
  while (status.code() == StatusCode::kUnavailable && context.on_accelerator &&
         pacer.waited() < kMemorySeconds) {
    backoff.Pause();
    TFHVD_RETURN_IF_ERROR((*context.on_wait)(pacer.waited()));
    status = Allocate(entry, piece.tensor, shape, &output);
  }
  entry.outputs[piece.tensor] = output;
  memory->Note(rows * RowBytes(spec), status);
  // On an accelerator the memory may be new only to us: the framework's earlier work in it is still
  // on its stream.
  return status.ok() ? context.device->AwaitStream(entry.extras().stream) : Status::Ok();
}

Status MemoryForRows(const PlanContext& context, const Plan& plan, std::vector<Agreed>* agreed,
                     PlanMemory* memory) {
  memory->of_all.assign(context.communicator->size(), 0);
  for (const Piece& piece : plan.pieces) {
    const Agreed& gather = (*agreed)[piece.agreed];
    const auto tensor = static_cast<size_t>(piece.tensor);
    const std::vector<int64_t> rows = gather.decision.RowsOfRanks(tensor);
    if (gather.entry.extras().gathers) {
      gather.entry.extras().gathers(piece.tensor, gather.decision.first_dims[tensor]);
    }
    memory->bytes.push_back(Times(rows, RowBytes(SpecOf(piece, *agreed))));
    TFHVD_RETURN_IF_ERROR(AllocateRows(context, piece, agreed, Sum(rows), memory));
    for (size_t r = 0; r < rows.size(); ++r) memory->of_all[r] += memory->bytes.back()[r];
  }
  if (plan.bytes == 0 || InPlace(plan, *agreed)) return Status::Ok();
  return GetBuffer(context, memory->of_all[context.communicator->rank()] + plan.bytes, memory);
}

Status MemoryForParts(const PlanContext& context, const Plan& plan, std::vector<Agreed>* agreed,
                      PlanMemory* memory) {
  const int me = context.communicator->rank();
  const int size = context.communicator->size();
  memory->of_all.assign(size, 0);  // elements
  for (const Piece& piece : plan.pieces) {
    const TensorSpec& spec = SpecOf(piece, *agreed);
    std::vector<int64_t> rows;
    for (int r = 0; r < size; ++r) rows.push_back(RowsOfPart(spec.shape[0], size, r));
    memory->bytes.push_back(Times(rows, RowBytes(spec)));
    TFHVD_RETURN_IF_ERROR(AllocateRows(context, piece, agreed, rows[me], memory));
    for (int r = 0; r < size; ++r)
      memory->of_all[r] += memory->bytes.back()[r] / ItemSize(plan.dtype);
  }
  if (plan.pieces.size() == 1) return Status::Ok();
  return GetBuffer(context, plan.bytes + memory->of_all[me] * ItemSize(plan.dtype), memory);
}

// Exchanges the numbers of rows among the ranks of the set, wherever the tensors are: only these
// ranks need them, so they are not sent to rank 0.
Status MemoryForExchange(const PlanContext& context, const Plan& plan, std::vector<Agreed>* agreed,
                         PlanMemory* memory) {
  const Piece& piece = plan.pieces[0];  // never fused
  const Entry& entry = (*agreed)[piece.agreed].entry;
  Communicator* const host = context.host;
  const auto size = static_cast<size_t>(host->size());
  memory->sent = entry.extras().splits;
  if (memory->sent.empty()) {
    memory->sent.assign(size, SpecOf(piece, *agreed).shape[0] / static_cast<int64_t>(size));
  }
  memory->received.resize(size);
  const std::vector<int64_t> one(size, sizeof(int64_t));
  {
    const Phase phase(context.phases, host->name(), "_ALLTOALL");
    TFHVD_RETURN_IF_ERROR(host->AllToAll(memory->sent.data(), one, memory->received.data(), one));
  }
  const auto& received_splits = entry.extras().received_splits;
  if (received_splits) received_splits(memory->received);
  return AllocateRows(context, piece, agreed, Sum(memory->received), memory);
}

Status MemoryForAdasum(const PlanContext& context, const Plan& plan,
                       const std::vector<Agreed>& agreed, PlanMemory* memory) {
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  memory->Note(plan.bytes, memory->adasum.Reserve(count, plan.dtype, context.communicator->rank(),
                                                  context.communicator->size()));
  if (!context.on_accelerator && HasAll(plan, agreed)) return Status::Ok();
  try {
    memory->copy.resize(static_cast<size_t>(plan.bytes));
  } catch (const std::bad_alloc&) {
    memory->Note(plan.bytes, Status::Unavailable("no memory for a copy"));
  }
  return Status::Ok();
}

}  // namespace

void PlanMemory::Note(int64_t bytes, const Status& status) {
  if (status.ok()) return;
  if (lacks == 0) why = status;
  lacks += std::max<int64_t>(bytes, 1);
}

Status GetMemory(const PlanContext& context, const Plan& plan, std::vector<Agreed>* agreed,
                 PlanMemory* memory) {
  switch (plan.kind) {
    case Collective::kAllReduce: {
      const bool spans = ShareOf(plan.weights, context.communicator->rank()) == 1.0 &&
                         context.communicator->takes_spans(plan.bytes) && HasAll(plan, *agreed);
      return InPlace(plan, *agreed) || spans ? Status::Ok()
                                             : GetBuffer(context, plan.bytes, memory);
    }
    case Collective::kBroadcast:
      return InPlace(plan, *agreed) ? Status::Ok() : GetBuffer(context, plan.bytes, memory);
    case Collective::kAdasum:
      return MemoryForAdasum(context, plan, *agreed, memory);
    case Collective::kAllGather:
      return MemoryForRows(context, plan, agreed, memory);
    case Collective::kReduceScatter:
      return MemoryForParts(context, plan, agreed, memory);
    case Collective::kAllToAll:
      return MemoryForExchange(context, plan, agreed, memory);
    default:
      return Status::Ok();
  }
}

Status ShareLacks(const PlanContext& context, const Plan& plan, const PlanMemory& memory,
                  std::vector<int64_t>* lacks) {
  if (!MayLack(plan)) return memory.why;
  Communicator* const host = context.host;
  const auto size = static_cast<size_t>(host->size());
  lacks->resize(size);
  TFHVD_RETURN_IF_ERROR(host->AllGather(&memory.lacks, lacks->data(),
                                        std::vector<int64_t>(size, sizeof memory.lacks)));
  if (Sum(*lacks) == 0) lacks->clear();
  return Status::Ok();
}

Status LackOf(const Request& request, const std::vector<int>& members,
              const std::vector<int64_t>& lacks) {
  std::string who;
  for (size_t r = 0; r < lacks.size(); ++r) {
    if (lacks[r] == 0) continue;
    who += (who.empty() ? "rank " : ", rank ") + std::to_string(members[r]) + " cannot get the " +
           std::to_string(lacks[r]) + " bytes of memory that it takes there";
  }
  return Status::Unavailable(std::string(CollectiveName(request.kind)) + " '" + request.key.name +
                             "' has failed on every rank: " + who +
                             ". Give it less data at once, or the process more memory.");
}

}  // namespace tfhvd
