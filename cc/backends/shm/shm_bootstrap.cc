// ShmBootstrap: how ranks of one host establish shared memory: the first rank makes it and sends
// its handle, and each reserves the parts that it writes.
#include <vector>

#include "cc/backends/shm/shm_communicator.h"
#include "cc/backends/shm/shm_control_plane.h"
#include "cc/backends/shm/sized_communicator.h"

namespace tfhvd {
namespace {

// The most memory that one communicator takes; with many ranks the slots are smaller.
constexpr int64_t kMostBytes = 64 << 20;
constexpr int64_t kLeastSlot = 64 << 10;

using Parts = std::vector<SharedMemory::Part>;

// Sets `all` to ok if every rank is ok; otherwise to this rank's error, or to an error that names
// another rank's. `first`: the first rank that failed.
Status EveryoneOk(Communicator* host, const Status& mine, int64_t* first, Status* all) {
  *first = mine.ok() ? host->size() : host->rank();
  Reduction min;
  min.op = ReduceOp::kMin;
  TFHVD_RETURN_IF_ERROR(host->AllReduce(first, first, 1, DType::kInt64, min));
  *all = mine;
  if (mine.ok() && *first != host->size()) {
    *all = Status::Unavailable("another rank of this host cannot share memory");
  }
  return Status::Ok();
}

Status Reserve(const Parts& parts, SharedMemory* memory) {
  for (const SharedMemory::Part& part : parts) TFHVD_RETURN_IF_ERROR(memory->Reserve(part));
  return Status::Ok();
}

// Collective. The first rank makes `bytes` bytes, all map them, and each reserves its `parts`. All
// ranks succeed or all fail. `lacks`: whether this rank is the first that failed, and for a lack of
// memory.
Status ShareMemory(Communicator* host, int64_t bytes, const Parts& parts,
                   const Failpoints& failpoints, SharedMemory* memory, bool* lacks) {
  Status mine;
  SharedMemory::Handle handle;
  if (host->rank() == 0) {
    mine = SharedMemory::Create(bytes, memory);
    if (mine.ok()) handle = memory->handle();
    failpoints.Hit(Failpoint::kMemoryMade);
  }
  TFHVD_RETURN_IF_ERROR(host->Broadcast(&handle, sizeof handle, 0));
  if (host->rank() != 0) {
    mine = handle.pid == 0 ? Status::Unavailable("rank 0 of this host could not make shared memory")
                           : SharedMemory::Open(handle, bytes, memory);
  }
  const bool seen = host->rank() == 0 || mine.ok();
  if (mine.ok()) mine = Reserve(parts, memory);
  failpoints.Hit(Failpoint::kMemoryMapped);
  int64_t first = 0;
  Status everyone;
  TFHVD_RETURN_IF_ERROR(EveryoneOk(host, mine, &first, &everyone));
  memory->Seal();
  *lacks = seen && first == host->rank();
  return everyone;
}

// Makes a communicator with slots of exactly the size in `options`. Collective over `host`.
Status MakeOfSize(Communicator* host, const ShmOptions& options,
                  std::unique_ptr<Communicator>* out) {
  const int ranks = host->size();
  auto memory = std::make_shared<SharedMemory>();
  bool lacks = false;
  const Status shared = ShareMemory(host, ShmCommunicator::SizeFor(ranks, options),
                                    ShmCommunicator::PartsOf(host->rank(), ranks, options),
                                    options.failpoints, memory.get(), &lacks);
  // Invisible peers cannot be helped, but the user can mend a lack of memory.
  if (lacks) options.log.Warning(shared.message() + ". Until then collectives are slower.");
  TFHVD_RETURN_IF_ERROR(shared);
  *out = std::make_unique<ShmCommunicator>(std::move(memory), host->rank(), ranks, options);
  return Status::Ok();
}

}  // namespace

Status MakeShmCommunicator(Communicator* host, const ShmOptions& given,
                           std::unique_ptr<Communicator>* out) {
  const int ranks = host->size();
  ShmOptions usual = given;
  while (ShmCommunicator::SizeFor(ranks, usual) > kMostBytes && usual.slot_bytes > kLeastSlot) {
    usual.slot_bytes /= 2;
  }
  ShmOptions first = usual;
  first.slot_bytes = (ranks * Exchange::kLine + Exchange::kPage - 1) / Exchange::kPage *
                     Exchange::kPage;  // with a lane for each rank
  if (first.slot_bytes >= usual.slot_bytes) return MakeOfSize(host, usual, out);
  std::unique_ptr<Communicator> made;
  TFHVD_RETURN_IF_ERROR(MakeOfSize(host, first, &made));
  *out = std::make_unique<SizedShmCommunicator>(
      std::move(made), first.slot_bytes,
      [usual](Communicator* through, std::unique_ptr<Communicator>* larger) {
        return MakeOfSize(through, usual, larger);
      });
  return Status::Ok();
}

Status MakeShmControlPlane(Communicator* host, std::unique_ptr<ControlPlane>* out) {
  SharedMemory memory;
  Parts parts;
  if (host->rank() == 0) parts.push_back({0, ShmControlPlane::SizeFor(host->size())});
  bool lacks = false;  // the communicator's warning is enough
  TFHVD_RETURN_IF_ERROR(
      ShareMemory(host, ShmControlPlane::SizeFor(host->size()), parts, {}, &memory, &lacks));
  *out = std::make_unique<ShmControlPlane>(std::move(memory), host->rank(), host->size());
  return Status::Ok();
}

}  // namespace tfhvd
