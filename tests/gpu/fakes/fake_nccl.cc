// NCCL's side of the fake: the functions. Nonblocking communicators answer that a call is in
// progress, so that callers must poll, as they must with NCCL.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/nccl/nccl_abi.h"
#include "cc/base/backoff.h"
#include "tests/gpu/fakes/fake_cuda.h"
#include "tests/gpu/fakes/fake_nccl_arithmetic.h"
#include "tests/gpu/fakes/fake_nccl_group.h"

namespace nccl = tfhvd::nccl;
using tfhvd::cuda::Stream;

struct ncclComm {
  std::shared_ptr<fake::Group> group;
  bool blocking = true;
  std::vector<std::pair<int, double>> premuls;  // type and factor of operation 100 + i
};

namespace fake {
namespace {

// A collective, or a send or receive (whose bytes are not 0).
struct Call {
  Header header;
  const char* in = nullptr;
  char* out = nullptr;
  Transfer transfer;
};

struct Queued {
  ncclComm* comm;
  Stream stream;
  Call call;
};

thread_local int depth = 0;
thread_local std::vector<Queued> queued;

// Every slot's part [offset, offset + n) of the tensor that they all have, reduced into `to`.
void ReduceSlots(const Group& group, const Header& h, size_t offset, size_t n, char* to) {
  std::vector<const char*> in;
  for (int r = 0; r < group.size(); ++r) in.push_back(group.slot(r));
  const size_t first = offset / kSlotBytes % in.size();
  Reduce(in, first, to, n / ItemSize(h.type), h.type, h.op, h.factor);
}

void RunCollective(Group& group, const Call& call) {
  const Header& h = call.header;
  const std::string what = h.what;
  const size_t bytes = h.count * ItemSize(h.type);
  const size_t me = static_cast<size_t>(group.rank());
  if (!group.Begin(h)) return;
  if (what == "AllReduce" || what == "Reduce") {
    const bool wanted = what == "AllReduce" || h.root == group.rank();
    group.Exchange(call.in, bytes, bytes, [&](size_t offset, size_t n) {
      if (wanted) ReduceSlots(group, h, offset, n, call.out + offset);
    });
  } else if (what == "ReduceScatter") {
    std::vector<char> all(bytes * static_cast<size_t>(group.size()));
    group.Exchange(call.in, all.size(), all.size(), [&](size_t offset, size_t n) {
      ReduceSlots(group, h, offset, n, all.data() + offset);
    });
    std::memcpy(call.out, all.data() + me * bytes, bytes);
  } else if (what == "AllGather") {
    group.Exchange(call.in, bytes, bytes, [&](size_t offset, size_t n) {
      for (int r = 0; r < group.size(); ++r) {
        std::memcpy(call.out + static_cast<size_t>(r) * bytes + offset, group.slot(r), n);
      }
    });
  } else {  // Broadcast
    const size_t mine = h.root == group.rank() ? bytes : 0;
    group.Exchange(call.in, mine, bytes, [&](size_t offset, size_t n) {
      std::memcpy(call.out + offset, group.slot(h.root), n);
    });
  }
}

// On the stream's thread.
void RunAll(const std::shared_ptr<Group>& group, const std::vector<Call>& calls) {
  const int fail_after = Setting("NCCL_FAIL_AFTER");
  if (fail_after > 0 && ++group->calls == fail_after) {
    group->Fail(nccl::kSystemError, "Call to ibv_modify_qp failed (injected by a test)");
  }
  const int closed_after = Setting("NCCL_CLOSED_AFTER");
  if (closed_after > 0 && ++group->calls == closed_after) {
    group->Fail(nccl::kRemoteError, "socketProgress: Connection closed by remote peer");
  }
  std::vector<Transfer> transfers;
  for (const Call& call : calls) {
    if (call.transfer.bytes > 0) transfers.push_back(call.transfer);
  }
  group->Transmit(std::move(transfers));
  for (const Call& call : calls) {
    if (call.transfer.bytes == 0) RunCollective(*group, call);
  }
}

int EndGroup() {
  std::vector<Queued> all;
  all.swap(queued);
  bool nonblocking = false;
  while (!all.empty()) {
    ncclComm* const comm = all[0].comm;
    const Stream stream = all[0].stream;
    std::vector<Call> calls;
    std::vector<Queued> others;
    for (Queued& q : all) {
      if (q.comm == comm && q.stream == stream) {
        calls.push_back(q.call);
      } else {
        others.push_back(q);
      }
    }
    all.swap(others);
    nonblocking |= !comm->blocking;
    Enqueue(stream, [group = comm->group, calls] { RunAll(group, calls); });
  }
  return nonblocking ? nccl::kInProgress : nccl::kSuccess;
}

int Put(ncclComm* comm, Stream stream, const Call& call) {
  if (comm == nullptr) return nccl::kInvalidArgument;
  queued.push_back({comm, stream, call});
  return depth > 0 ? nccl::kSuccess : EndGroup();
}

Call Collective(ncclComm* comm, const char* what, const void* in, void* out, size_t count, int type,
                int op, int root) {
  Call call;
  std::strncpy(call.header.what, what, sizeof call.header.what - 1);
  call.header.count = count;
  call.header.type = type;
  call.header.root = root;
  call.header.op = op;
  if (op >= 100) {
    call.header.op = nccl::kSum;
    call.header.factor = comm->premuls[static_cast<size_t>(op - 100)].second;
  }
  call.in = static_cast<const char*>(in);
  call.out = static_cast<char*>(out);
  return call;
}

// What NCCL says where something about a machine is wrong: its words in its sources' messages.
struct InitFailure {
  bool in_unique_id;
  int result;
  const char* text;
};
constexpr InitFailure kInitFailures[] = {
    {false, nccl::kSystemError,
     "Error while creating shared memory segment /dev/shm/nccl-hAgY3i (size 9637888), error: No "
     "space left on device (28)"},
    {true, nccl::kInvalidUsage, "Bootstrap : no socket interface found"},
    {false, nccl::kSystemError,
     "socketPollConnect: connect to 172.17.0.1<39483> returned Connection refused, exceeded error "
     "retry count after 35 attempts"},
    {false, nccl::kUnhandledCudaError,
     "Cuda failure 35 'CUDA driver version is insufficient for CUDA runtime version'"},
    {false, nccl::kInvalidUsage,
     "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 100000"},
};

// What failed last where there is no communicator yet.
thread_local std::string last_error;

int FailsToInit(bool in_unique_id) {
  const int which = Setting("NCCL_INIT_FAILS");
  if (which == 0 || kInitFailures[which - 1].in_unique_id != in_unique_id) return nccl::kSuccess;
  last_error = kInitFailures[which - 1].text;
  return kInitFailures[which - 1].result;
}

double ReadScalar(const void* scalar, int type) {
  if (type == nccl::kFloat64) return *static_cast<const double*>(scalar);
  if (type == nccl::kFloat16) return tfhvd::ToFloat(*static_cast<const tfhvd::Float16*>(scalar));
  if (type == nccl::kBfloat16) return tfhvd::ToFloat(*static_cast<const tfhvd::BFloat16*>(scalar));
  return *static_cast<const float*>(scalar);
}

int Open(ncclComm** comm, const std::string& name, int rank, int size, const nccl::Config* config) {
  *comm = new ncclComm();
  (*comm)->blocking = config == nullptr || config->blocking != 0;
  const bool reachable = Setting("NCCL_UNREACHABLE") == 0;
  (*comm)->group = std::make_shared<Group>(name, rank, size, reachable);
  if (!(*comm)->blocking) return nccl::kInProgress;
  for (tfhvd::Backoff backoff; !(*comm)->group->complete();) backoff.Pause();
  return nccl::kSuccess;
}

}  // namespace
}  // namespace fake

using fake::Collective;
using fake::Put;

extern "C" {

int ncclGetVersion(int* version) {
  *version = fake::Setting("NCCL_VERSION");
  return nccl::kSuccess;
}
int ncclGetUniqueId(nccl::UniqueId* id) {
  const int failed = fake::FailsToInit(/*in_unique_id=*/true);
  if (failed != nccl::kSuccess) return failed;
  // Drawn, as NCCL's are: processes in containers of their own, which a sandbox makes of tests,
  // have the same numbers and share this host's memory.
  std::random_device draw;
  std::snprintf(id->internal, sizeof id->internal, "/tfhvd_fake_nccl_%08x%08x%08x", draw(), draw(),
                draw());
  return nccl::kSuccess;
}
const char* ncclGetErrorString(int result) {
  static const char* const kTexts[] = {"no error",       "unhandled cuda error", "system error",
                                       "internal error", "invalid argument",     "invalid usage",
                                       "remote error",   "in progress"};
  return result >= 0 && result <= nccl::kInProgress ? kTexts[result] : "unknown";
}
const char* ncclGetLastError(ncclComm* comm) {
  static thread_local std::string text;
  text = comm == nullptr ? fake::last_error : comm->group->last_error();
  return text.c_str();
}
int ncclCommInitRankConfig(ncclComm** comm, int size, nccl::UniqueId id, int rank,
                           nccl::Config* config) {
  if (config->size != 48 || config->magic != 0xcafebeef || config->version != 21700 ||
      size > fake::kMostRanks) {
    return nccl::kInvalidArgument;
  }
  const int failed = rank == size - 1 ? fake::FailsToInit(/*in_unique_id=*/false) : nccl::kSuccess;
  if (failed != nccl::kSuccess) return failed;
  return fake::Open(comm, id.internal, rank, size, config);
}
int ncclCommGetAsyncError(ncclComm* comm, int* state) {
  *state = comm->group->complete() ? comm->group->state() : nccl::kInProgress;
  return nccl::kSuccess;
}
int ncclCommFinalize(ncclComm*) { return nccl::kSuccess; }
int ncclCommDestroy(ncclComm* comm) {
  delete comm;
  return nccl::kSuccess;
}
int ncclCommAbort(ncclComm* comm) {
  comm->group->Abort();
  delete comm;
  return nccl::kSuccess;
}
int ncclGroupStart() {
  ++fake::depth;
  return nccl::kSuccess;
}
int ncclGroupEnd() { return --fake::depth > 0 ? nccl::kSuccess : fake::EndGroup(); }
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, ncclComm* comm) {
  if (residence != nccl::kScalarHostImmediate) return nccl::kInvalidArgument;
  comm->premuls.emplace_back(type, fake::ReadScalar(scalar, type));
  *op = 100 + static_cast<int>(comm->premuls.size()) - 1;
  return nccl::kSuccess;
}
int ncclRedOpDestroy(int, ncclComm*) { return nccl::kSuccess; }

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, ncclComm* comm,
                  Stream stream) {
  return Put(comm, stream, Collective(comm, "AllReduce", in, out, count, type, op, 0));
}
int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, ncclComm* comm,
               Stream stream) {
  return Put(comm, stream, Collective(comm, "Reduce", in, out, count, type, op, root));
}
int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, ncclComm* comm,
                      Stream stream) {
  return Put(comm, stream, Collective(comm, "ReduceScatter", in, out, count, type, op, 0));
}
int ncclAllGather(const void* in, void* out, size_t count, int type, ncclComm* comm,
                  Stream stream) {
  return Put(comm, stream, Collective(comm, "AllGather", in, out, count, type, 0, 0));
}
int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, ncclComm* comm,
                  Stream stream) {
  return Put(comm, stream, Collective(comm, "Broadcast", in, out, count, type, 0, root));
}
int ncclSend(const void* in, size_t count, int type, int peer, ncclComm* comm, Stream stream) {
  fake::Call call;
  call.transfer = {true, peer, const_cast<char*>(static_cast<const char*>(in)),
                   count * fake::ItemSize(type)};
  return Put(comm, stream, call);
}
int ncclRecv(void* out, size_t count, int type, int peer, ncclComm* comm, Stream stream) {
  fake::Call call;
  call.transfer = {false, peer, static_cast<char*>(out), count * fake::ItemSize(type)};
  return Put(comm, stream, call);
}

}  // extern "C"
