// The memory that a plan needs in addition to that of its entries, before any data move. Each rank
// tells the others what it cannot get: so a collective fails on all ranks, and the job continues.
#include <algorithm>
#include <new>
#include <numeric>

#include "cc/base/backoff.h"
#include "cc/collectives/adasum.h"
#include "cc/execute/executor.h"
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

// Returns the same text on every rank; `lacks` and `members` by rank of the set.
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

}  // namespace

void Executor::Room::Note(int64_t bytes, const Status& status) {
  if (status.ok()) return;
  if (lacks == 0) why = status;
  lacks += std::max<int64_t>(bytes, 1);
}

// Gets all the memory that the plan needs on this rank.
Status Executor::MakeRoom(const Plan& plan, Communicator* communicator, std::vector<Agreed>* agreed,
                          Room* room) {
  switch (plan.kind) {
    case Collective::kAllReduce: {
      const bool spans = ShareOf(plan.weights, communicator->rank()) == 1.0 &&
                         communicator->takes_spans(plan.bytes) && HasAll(plan, *agreed);
      return InPlace(plan, *agreed) || spans ? Status::Ok() : GetBuffer(plan.bytes, room);
    }
    case Collective::kBroadcast:
      return InPlace(plan, *agreed) ? Status::Ok() : GetBuffer(plan.bytes, room);
    case Collective::kAdasum:
      return RoomForAdasum(plan, *communicator, *agreed, room);
    case Collective::kAllGather:
      return RoomForRows(plan, *communicator, agreed, room);
    case Collective::kReduceScatter:
      return RoomForParts(plan, *communicator, agreed, room);
    case Collective::kAllToAll:
      return RoomForExchange(plan, agreed, room);
    default:
      return Status::Ok();
  }
}

Status Executor::GetBuffer(int64_t bytes, Room* room) {
  if (bytes == 0) return Status::Ok();
  const Status status = device_->Scratch(bytes, &room->buffer);
  if (!status.ok() && status.code() != StatusCode::kUnavailable) return status;
  room->Note(bytes, status);
  return Status::Ok();
}

// Gets memory for a result of `rows` rows.
Status Executor::AllocateRows(const Piece& piece, std::vector<Agreed>* agreed, int64_t rows,
                              Room* room) {
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
  while (status.code() == StatusCode::kUnavailable && device_ != host_ &&
         pacer.waited() < kMemorySeconds) {
    backoff.Pause();
    TFHVD_RETURN_IF_ERROR(OnDeviceWait(pacer.waited()));
    status = Allocate(entry, piece.tensor, shape, &output);
  }
  entry.outputs[piece.tensor] = output;
  room->Note(rows * RowBytes(spec), status);
  // On an accelerator the memory may be new only to us: the framework's earlier work in it is still
  // on its stream.
  return status.ok() ? device_->AwaitStream(entry.extras().stream) : Status::Ok();
}

Status Executor::RoomForRows(const Plan& plan, const Communicator& communicator,
                             std::vector<Agreed>* agreed, Room* room) {
  room->of_all.assign(communicator.size(), 0);
  for (const Piece& piece : plan.pieces) {
    const Agreed& gather = (*agreed)[piece.agreed];
    const auto tensor = static_cast<size_t>(piece.tensor);
    const std::vector<int64_t> rows = gather.decision.RowsOfRanks(tensor);
    if (gather.entry.extras().gathers) {
      gather.entry.extras().gathers(piece.tensor, gather.decision.first_dims[tensor]);
    }
    room->bytes.push_back(Times(rows, RowBytes(SpecOf(piece, *agreed))));
    TFHVD_RETURN_IF_ERROR(AllocateRows(piece, agreed, Sum(rows), room));
    for (size_t r = 0; r < rows.size(); ++r) room->of_all[r] += room->bytes.back()[r];
  }
  if (plan.bytes == 0 || InPlace(plan, *agreed)) return Status::Ok();
  return GetBuffer(room->of_all[communicator.rank()] + plan.bytes, room);
}

Status Executor::RoomForParts(const Plan& plan, const Communicator& communicator,
                              std::vector<Agreed>* agreed, Room* room) {
  const int me = communicator.rank();
  const int size = communicator.size();
  room->of_all.assign(size, 0);  // elements
  for (const Piece& piece : plan.pieces) {
    const TensorSpec& spec = SpecOf(piece, *agreed);
    std::vector<int64_t> rows;
    for (int r = 0; r < size; ++r) rows.push_back(RowsOfPart(spec.shape[0], size, r));
    room->bytes.push_back(Times(rows, RowBytes(spec)));
    TFHVD_RETURN_IF_ERROR(AllocateRows(piece, agreed, rows[me], room));
    for (int r = 0; r < size; ++r) room->of_all[r] += room->bytes.back()[r] / ItemSize(plan.dtype);
  }
  if (plan.pieces.size() == 1) return Status::Ok();
  return GetBuffer(plan.bytes + room->of_all[me] * ItemSize(plan.dtype), room);
}

// Exchanges the numbers of rows among the ranks of the set, wherever the tensors are: only these
// ranks need them, so they are not sent to rank 0.
Status Executor::RoomForExchange(const Plan& plan, std::vector<Agreed>* agreed, Room* room) {
  const Piece& piece = plan.pieces[0];  // never fused
  const Entry& entry = (*agreed)[piece.agreed].entry;
  Communicator* const host = communicators_.at(plan.process_set);
  const auto size = static_cast<size_t>(host->size());
  room->sent = entry.extras().splits;
  if (room->sent.empty()) {
    room->sent.assign(size, SpecOf(piece, *agreed).shape[0] / static_cast<int64_t>(size));
  }
  room->received.resize(size);
  const std::vector<int64_t> one(size, sizeof(int64_t));
  {
    const Phase phase(this, host->name(), "_ALLTOALL");
    TFHVD_RETURN_IF_ERROR(host->AllToAll(room->sent.data(), one, room->received.data(), one));
  }
  const auto& received_splits = entry.extras().received_splits;
  if (received_splits) received_splits(room->received);
  return AllocateRows(piece, agreed, Sum(room->received), room);
}

Status Executor::RoomForAdasum(const Plan& plan, const Communicator& communicator,
                               const std::vector<Agreed>& agreed, Room* room) {
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  room->Note(plan.bytes,
             room->adasum.Reserve(count, plan.dtype, communicator.rank(), communicator.size()));
  if (device_ == host_ && HasAll(plan, agreed)) return Status::Ok();
  try {
    room->copy.resize(static_cast<size_t>(plan.bytes));
  } catch (const std::bad_alloc&) {
    room->Note(plan.bytes, Status::Unavailable("no memory for a copy"));
  }
  return Status::Ok();
}

// Returns the bytes that each rank of the set lacks, by rank; empty if no rank lacks any.
Status Executor::TellLacks(const Plan& plan, const Room& room, std::vector<int64_t>* lacks) {
  if (!MayLack(plan)) return room.why;
  Communicator* const host = communicators_.at(plan.process_set);
  const auto size = static_cast<size_t>(host->size());
  lacks->resize(size);
  TFHVD_RETURN_IF_ERROR(
      host->AllGather(&room.lacks, lacks->data(), std::vector<int64_t>(size, sizeof room.lacks)));
  if (Sum(*lacks) == 0) lacks->clear();
  return Status::Ok();
}

// Called if some rank lacks memory. Runs each tensor separately, so that only those fail that have
// to.
Status Executor::RunWithout(const Plan& plan, const Room& room, const std::vector<int64_t>& lacks,
                            std::vector<Agreed>* agreed) {
  if (plan.pieces.size() == 1) {
    const int index = plan.pieces[0].agreed;
    const Request& request = *(*agreed)[index].entry.request;
    const bool told = room.lacks > 0 && room.why.code() != StatusCode::kUnavailable;
    Status why = told ? room.why : LackOf(request, *sets_->Find(plan.process_set), lacks);
    failed_.emplace_back(index, std::move(why).ByAgreement());
    return Status::Ok();
  }
  for (const Piece& piece : plan.pieces) {
    Plan alone = plan;
    alone.pieces = {piece};
    alone.bytes = piece.bytes;
    TFHVD_RETURN_IF_ERROR(RunStages(alone, agreed));
  }
  return Status::Ok();
}

// Returns the status of the entry with this index.
Status Executor::VerdictOn(int agreed, const Status& broken) const {
  if (!broken.ok() || failed_.empty()) return broken;
  const auto found = std::find_if(failed_.begin(), failed_.end(),
                                  [agreed](const auto& failed) { return failed.first == agreed; });
  return found == failed_.end() ? broken : found->second;
}

}  // namespace tfhvd
