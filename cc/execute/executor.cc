#include "cc/execute/executor.h"

#include <chrono>
#include <numeric>

#include "cc/base/backoff.h"

namespace tfhvd {
namespace {

const void* InputOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.inputs[piece.tensor];
}

void* OutputOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.outputs[piece.tensor];
}

using Clock = std::chrono::steady_clock;

// An allgather's tensor, by what every rank brings of it.
struct Gathered {
  std::vector<int64_t> bytes;  // by rank
  void* output = nullptr;
};

Status AllocateGathered(const Piece& piece, std::vector<Agreed>* agreed, Gathered* out) {
  Agreed& a = (*agreed)[piece.agreed];
  const TensorSpec& spec = a.entry.request.tensors[piece.tensor];
  const std::vector<int64_t>& dims = a.decision.first_dims[piece.tensor];
  for (int64_t dim : dims) out->bytes.push_back(dim * RowBytes(spec));
  Shape shape = spec.shape;
  shape[0] = std::accumulate(dims.begin(), dims.end(), int64_t{0});
  return a.entry.allocate(piece.tensor, shape, &out->output);
}

}  // namespace

Status Executor::Run(const std::vector<Plan>& plans, std::vector<Agreed> agreed) {
  std::vector<size_t> left(agreed.size(), 0);  // pieces to go, by entry
  for (const Plan& plan : plans) {
    for (const Piece& piece : plan.pieces) ++left[piece.agreed];
  }
  Status broken;
  for (const Plan& plan : plans) {
    if (broken.ok()) {
      broken = RunPlan(plan, &agreed);
      // Tensors are given back below: nothing may touch them any more.
      if (!broken.ok() && plan.device != DeviceKind::kHost) AbortAccelerator(broken);
    }
    for (const Piece& piece : plan.pieces) {
      if (--left[piece.agreed] == 0) agreed[piece.agreed].entry.done(broken);
    }
  }
  return broken;
}

Status Executor::Poll() {
  for (const auto& [process_set, communicator] : on_accelerator_) {
    const Status status = communicator == nullptr ? Status::Ok() : communicator->Poll();
    if (status.ok()) continue;
    AbortAccelerator(status);  // frees the framework's streams, which wait for ours
    return status;
  }
  return Status::Ok();
}

void Executor::AbortAccelerator(const Status& why) {
  for (const auto& [process_set, communicator] : on_accelerator_) {
    if (communicator != nullptr) communicator->Abort(why);
  }
  // What it says does not matter: the job is over.
  if (accelerator_ != nullptr) (void)accelerator_->Drain();
}

void Executor::Finish(const Status& lost, double seconds) {
  if (!lost.ok()) {
    for (const auto& [process_set, communicator] : communicators_) communicator->Abort(lost);
    return AbortAccelerator(lost);
  }
  if (on_accelerator_.empty()) return;
  // Every rank has left; one that left because of an error may have taken back its part of what is
  // still going on here.
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (Backoff backoff; accelerator_->busy() && Clock::now() < deadline;) backoff.Pause();
  if (accelerator_->busy()) {
    AbortAccelerator(Status::Aborted("every rank has left the job, with a collective under way"));
  }
}

// The device and the communicator that `plan` is run with.
Status Executor::Choose(const Plan& plan, Communicator** communicator) {
  const auto found = communicators_.find(plan.process_set);
  if (found == communicators_.end()) {
    return Status::Internal("there is no communicator for process set " +
                            std::to_string(plan.process_set));
  }
  device_ = host_;
  *communicator = found->second;
  if (plan.device == DeviceKind::kHost) return Status::Ok();
  if (accelerator_ == nullptr) return Status::Internal("there is no device for GPU tensors");
  device_ = accelerator_;
  std::unique_ptr<Communicator>& own = on_accelerator_[plan.process_set];
  if (own == nullptr) TFHVD_RETURN_IF_ERROR(backend_->Open(found->second, &own));
  *communicator = own.get();
  return Status::Ok();
}

Status Executor::RunPlan(const Plan& plan, std::vector<Agreed>* agreed) {
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(Choose(plan, &communicator));
  for (const Piece& piece : plan.pieces) {
    TFHVD_RETURN_IF_ERROR(device_->Await((*agreed)[piece.agreed].entry.ready));
  }
  TFHVD_RETURN_IF_ERROR(Enqueue(plan, communicator, agreed));
  for (const Piece& piece : plan.pieces) {
    TFHVD_RETURN_IF_ERROR(device_->Release((*agreed)[piece.agreed].entry.stream));
  }
  return Status::Ok();
}

Status Executor::Enqueue(const Plan& plan, Communicator* communicator,
                         std::vector<Agreed>* agreed) {
  switch (plan.kind) {
    case Collective::kAllReduce:
      return AllReduce(plan, communicator, agreed);
    case Collective::kBroadcast:
      return Broadcast(plan, communicator, agreed);
    case Collective::kAllGather:
      return AllGather(plan, communicator, agreed);
    case Collective::kBarrier:
      return communicator->Barrier();
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      break;
  }
  return Status::Internal(std::string("no operation submits a ") + CollectiveName(plan.kind));
}

Status Executor::AllReduce(const Plan& plan, Communicator* communicator,
                           std::vector<Agreed>* agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const int64_t count = plan.bytes / ItemSize(plan.dtype);
  if (plan.pieces.size() == 1) {
    const Piece& piece = plan.pieces[0];
    return communicator->AllReduce(InputOf(piece, *agreed), OutputOf(piece, *agreed), count,
                                   plan.dtype, plan.reduction);
  }
  char* buffer = nullptr;
  TFHVD_RETURN_IF_ERROR(device_->Scratch(plan.bytes, &buffer));
  char* at = buffer;
  for (const Piece& piece : plan.pieces) {
    TFHVD_RETURN_IF_ERROR(device_->Copy(at, InputOf(piece, *agreed), piece.bytes));
    at += piece.bytes;
  }
  TFHVD_RETURN_IF_ERROR(communicator->AllReduce(buffer, buffer, count, plan.dtype, plan.reduction));
  at = buffer;
  for (const Piece& piece : plan.pieces) {
    TFHVD_RETURN_IF_ERROR(device_->Copy(OutputOf(piece, *agreed), at, piece.bytes));
    at += piece.bytes;
  }
  return Status::Ok();
}

Status Executor::Broadcast(const Plan& plan, Communicator* communicator,
                           std::vector<Agreed>* agreed) {
  if (plan.bytes == 0) return Status::Ok();
  const bool at_root = communicator->rank() == plan.root;
  if (at_root) {
    for (const Piece& piece : plan.pieces) {
      const void* input = InputOf(piece, *agreed);
      void* output = OutputOf(piece, *agreed);
      if (input != output) TFHVD_RETURN_IF_ERROR(device_->Copy(output, input, piece.bytes));
    }
  }
  if (plan.pieces.size() == 1) {
    return communicator->Broadcast(OutputOf(plan.pieces[0], *agreed), plan.bytes, plan.root);
  }
  char* buffer = nullptr;
  TFHVD_RETURN_IF_ERROR(device_->Scratch(plan.bytes, &buffer));
  char* at = buffer;
  for (const Piece& piece : plan.pieces) {
    if (at_root) TFHVD_RETURN_IF_ERROR(device_->Copy(at, InputOf(piece, *agreed), piece.bytes));
    at += piece.bytes;
  }
  TFHVD_RETURN_IF_ERROR(communicator->Broadcast(buffer, plan.bytes, plan.root));
  at = buffer;
  for (const Piece& piece : plan.pieces) {
    if (!at_root) TFHVD_RETURN_IF_ERROR(device_->Copy(OutputOf(piece, *agreed), at, piece.bytes));
    at += piece.bytes;
  }
  return Status::Ok();
}

Status Executor::AllGather(const Plan& plan, Communicator* communicator,
                           std::vector<Agreed>* agreed) {
  const int me = communicator->rank();
  const int size = communicator->size();
  std::vector<Gathered> gathered(plan.pieces.size());
  std::vector<int64_t> bytes(size, 0);  // of all pieces, by rank
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    TFHVD_RETURN_IF_ERROR(AllocateGathered(plan.pieces[p], agreed, &gathered[p]));
    // On an accelerator the memory may be new to us alone: what the framework did in it before is
    // still on its stream.
    TFHVD_RETURN_IF_ERROR(device_->AwaitStream((*agreed)[plan.pieces[p].agreed].entry.stream));
    for (int r = 0; r < size; ++r) bytes[r] += gathered[p].bytes[r];
  }
  if (plan.bytes == 0) return Status::Ok();
  if (plan.pieces.size() == 1) {
    return communicator->AllGather(InputOf(plan.pieces[0], *agreed), gathered[0].output, bytes);
  }

  // The buffer holds this rank's parts of all pieces, then what the ranks sent: for each rank its
  // parts.
  char* buffer = nullptr;
  TFHVD_RETURN_IF_ERROR(device_->Scratch(bytes[me] + plan.bytes, &buffer));
  char* at = buffer;
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    TFHVD_RETURN_IF_ERROR(
        device_->Copy(at, InputOf(plan.pieces[p], *agreed), gathered[p].bytes[me]));
    at += gathered[p].bytes[me];
  }
  const char* from = at;
  TFHVD_RETURN_IF_ERROR(communicator->AllGather(buffer, at, bytes));
  std::vector<char*> to;
  for (const Gathered& g : gathered) to.push_back(static_cast<char*>(g.output));
  for (int r = 0; r < size; ++r) {
    for (size_t p = 0; p < plan.pieces.size(); ++p) {
      TFHVD_RETURN_IF_ERROR(device_->Copy(to[p], from, gathered[p].bytes[r]));
      to[p] += gathered[p].bytes[r];
      from += gathered[p].bytes[r];
    }
  }
  return Status::Ok();
}

}  // namespace tfhvd
