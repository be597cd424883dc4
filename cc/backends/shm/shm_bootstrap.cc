// How ranks of one host come to share memory: the first one makes it and tells the others where it
// is.
#include "cc/backends/shm/shm_communicator.h"
#include "cc/backends/shm/shm_control_plane.h"

namespace tfhvd {
namespace {

// The most memory that one communicator takes; with many ranks the slots get smaller.
constexpr int64_t kMostBytes = 64 << 20;
constexpr int64_t kLeastSlot = 64 << 10;

// What a rank tells the others about a step of the way.
Status EveryoneOk(Communicator* host, const Status& mine, Status* all) {
  int64_t bad = mine.ok() ? 0 : 1;
  Reduction max;
  max.op = ReduceOp::kMax;
  TFHVD_RETURN_IF_ERROR(host->AllReduce(&bad, &bad, 1, DType::kInt64, max));
  *all = mine;
  if (mine.ok() && bad != 0) {
    *all = Status::Unavailable("another rank of this host cannot share memory");
  }
  return Status::Ok();
}

// Collective: the first rank makes `bytes` bytes, and all map them. Either all succeed or all fail.
Status ShareMemory(Communicator* host, int64_t bytes, SharedMemory* memory) {
  Status mine;
  SharedMemory::Handle handle;
  if (host->rank() == 0) {
    mine = SharedMemory::Create(bytes, memory);
    if (mine.ok()) handle = memory->handle();
  }
  TFHVD_RETURN_IF_ERROR(host->Broadcast(&handle, sizeof handle, 0));
  if (host->rank() != 0) {
    mine = handle.pid == 0 ? Status::Unavailable("rank 0 of this host could not make shared memory")
                           : SharedMemory::Open(handle, bytes, memory);
  }
  Status everyone;
  TFHVD_RETURN_IF_ERROR(EveryoneOk(host, mine, &everyone));
  memory->Seal();
  return everyone;
}

}  // namespace

Status MakeShmCommunicator(Communicator* host, const ShmOptions& given,
                           std::unique_ptr<Communicator>* out) {
  const int ranks = host->size();
  ShmOptions options = given;
  while (ShmCommunicator::SizeFor(ranks, options) > kMostBytes && options.slot_bytes > kLeastSlot) {
    options.slot_bytes /= 2;
  }
  auto memory = std::make_shared<SharedMemory>();
  const Status shared = ShareMemory(host, ShmCommunicator::SizeFor(ranks, options), memory.get());
  // Peers that cannot be seen are as they are; a lack of memory somebody can mend.
  const bool lacking = !shared.ok() && host->rank() == 0 && memory->data() == nullptr;
  if (lacking) options.log.Warning(shared.message() + ". Until then collectives are slower.");
  TFHVD_RETURN_IF_ERROR(shared);
  *out = std::make_unique<ShmCommunicator>(std::move(memory), host->rank(), ranks, options);
  return Status::Ok();
}

Status MakeShmControlPlane(Communicator* host, std::unique_ptr<ControlPlane>* out) {
  SharedMemory memory;
  TFHVD_RETURN_IF_ERROR(ShareMemory(host, ShmControlPlane::SizeFor(host->size()), &memory));
  *out = std::make_unique<ShmControlPlane>(std::move(memory), host->rank(), host->size());
  return Status::Ok();
}

}  // namespace tfhvd
