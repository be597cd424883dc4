#include "cc/process/pending_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/flow/decision.h"
#include "cc/process/process.h"

namespace tfhvd {
namespace {

// A failed run can start a collective only until its other threads have stopped, so old ones are
// dropped.
constexpr size_t kFailedRunsKept = 256;

// Returns the error of a result of unexpected shape on a GPU, for which there is no memory. It ends
// the job.
Status NoMemoryOnGpu(const Request& request, const Status& why) {
  if (!why.ok()) return why;
  return Status::InvalidArgument(
      std::string(CollectiveName(request.kind)) + " '" + request.key.name +
      "' of a compiled function cannot run on a GPU while ranks have joined because their data "
      "have ended. Give every rank the same number of batches, or pass jit_compile=False.");
}

// Keeps the first failure, except that any failure replaces kCancelled: a collective that was taken
// back has another failure as its cause.
void NoteFailure(const Status& status, Status* first) {
  if (status.ok()) return;
  if (first->ok() || first->code() == StatusCode::kCancelled) *first = status;
}

bool IsAllocatedLate(Collective kind) {
  return kind == Collective::kAllGather || kind == Collective::kReduceScatter ||
         kind == Collective::kAllToAll;
}

}  // namespace

PendingCollectives::Run PendingCollectives::Begin() {
  MutexLock lock(&mutex_);
  return ++last_run_;
}

PendingCollectives::Id PendingCollectives::Start(Run run, const std::shared_ptr<Engine>& engine,
                                                 Entry entry, std::vector<Result> results) {
  const auto pending = std::make_shared<PendingCollective>();
  pending->run = run;
  pending->results = std::move(results);
  pending->engine = engine;
  Id id;
  {
    MutexLock lock(&mutex_);
    id = ++last_id_;
    pending_[id] = pending;
    const Status* const why = WhyFailed(run);
    if (engine == nullptr || why != nullptr) {
      pending->over = true;
      pending->status = engine == nullptr ? NotInitialized() : *why;
      return id;
    }
  }
  const bool late = IsAllocatedLate(entry.request->kind);
  entry.outputs.clear();
  for (const Result& result : pending->results)
    entry.outputs.push_back(late ? nullptr : result.data);
  pending->request = entry.request;
  pending->reshaped.resize(pending->results.size());
  if (entry.request->kind == Collective::kAllGather) {
    entry.EditExtras()->gathers = [pending](int tensor, const std::vector<int64_t>& first_dims) {
      pending->reshaped[static_cast<size_t>(tensor)].first_dims = first_dims;
    };
  }
  entry.allocate = [pending](int tensor, const Shape& shape, void** output) {
    return Allocate(pending.get(), static_cast<size_t>(tensor), shape, output);
  };
  if (entry.request->device != DeviceKind::kHost) {
    pending->stream = entry.extras().stream;
    entry.EditExtras()->finished = [pending](std::shared_ptr<void> end) {
      pending->end = std::move(end);
    };
  }
  entry.done = [this, pending](const Status& status) { OnDone(pending, status); };
  entry.withdrawal = &pending->withdrawal;
  (void)SubmitToJob(engine, std::move(entry));
  return id;
}

Status PendingCollectives::Finish(const std::vector<Id>& ids, const std::vector<void*>& outputs,
                                  void* stream) {
  Several ended;
  Status status;
  {
    MutexLock lock(&mutex_);
    status = Take(ids, outputs, &ended);
    WaitFor(ended);
    for (const auto& pending : ended) {
      NoteFailure(pending->status, &status);
      const bool taken_back = pending->status.code() == StatusCode::kCancelled;
      const Status* const why = taken_back ? WhyFailed(pending->run) : nullptr;
      if (why != nullptr) NoteFailure(*why, &status);
      NoteFailure(Follow(*pending, stream), &status);
    }
    if (status.ok()) return status;
    for (const auto& [id, pending] : pending_) ended.push_back(pending);
    pending_.clear();
    FailRuns(ended, status);
  }
  TakeBack(ended);
  MutexLock lock(&mutex_);
  WaitFor(ended);
  // The framework's streams free that memory: after our work on it.
  for (const auto& pending : ended) (void)Follow(*pending, pending->stream);
  return status;
}

Status PendingCollectives::Follow(const PendingCollective& pending, void* stream) {
  if (pending.end == nullptr) return Status::Ok();
  const std::shared_ptr<Engine> engine = pending.engine.lock();
  return engine == nullptr ? Status::Ok() : engine->Follow(stream, pending.end);
}

void PendingCollectives::Keep(const void* address, int64_t number) {
  MutexLock lock(&mutex_);
  kept_[address] = number;
}

std::optional<int64_t> PendingCollectives::Kept(const void* address) const {
  MutexLock lock(&mutex_);
  const auto found = kept_.find(address);
  if (found == kept_.end()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> PendingCollectives::TakeKept(const void* address) {
  MutexLock lock(&mutex_);
  const auto taken = kept_.extract(address);
  if (taken.empty()) return std::nullopt;
  return taken.mapped();
}

size_t PendingCollectives::size() const {
  MutexLock lock(&mutex_);
  return pending_.size();
}

// Runs on the engine's thread, the only user of `reshaped` until the collective is over. The other
// ranks have already begun the collective, so it must get its memory and complete here, too.
Status PendingCollectives::Allocate(PendingCollective* pending, size_t tensor, const Shape& shape,
                                    void** output) {
  const Request& request = *pending->request;
  const Result& expected = pending->results[tensor];
  *output = expected.data;
  if (shape == expected.shape) return Status::Ok();
  Reshaped* const reshaped = &pending->reshaped[tensor];
  const int64_t rows = request.tensors[tensor].shape[0];
  const auto ranks = static_cast<int64_t>(reshaped->first_dims.size());
  const std::string what = std::string(CollectiveName(request.kind)) + " '" + request.key.name +
                           "' of a compiled function. Received: a result of shape " +
                           ShapeString(shape) + ". Expected: " + ShapeString(expected.shape) +
                           ", as this rank's tensor has the shape " +
                           ShapeString(request.tensors[tensor].shape);
  Status why;
  if (!LacksJoinedAlone(*reshaped, rows)) {
    why = Status::InvalidArgument("The ranks' first dimensions differ in " + what +
                                  " and XLA fixes shapes beforehand. Make them equal, by padding, "
                                  "or call it outside of jit_compile=True.");
  } else if (ranks * rows != expected.shape[0]) {  // ranks have failed or joined since
    why = Status::Aborted(std::to_string(ranks) + " ranks take part in " + what +
                          ", there were other ranks when it was compiled, and XLA fixes shapes "
                          "beforehand. In an elastic job call it outside of jit_compile=True.");
  }
  if (request.device != DeviceKind::kHost) return NoMemoryOnGpu(request, why);
  const int64_t bytes = NumElements(shape) * ItemSize(request.tensors[tensor].dtype);
  reshaped->memory.resize(static_cast<size_t>(bytes));
  *output = reshaped->memory.data();
  if (!why.ok()) pending->why_reshaped = why;
  return Status::Ok();
}

// Returns whether the result lacks only the rows of ranks that have joined (hvd.join).
bool PendingCollectives::LacksJoinedAlone(const Reshaped& reshaped, int64_t rows) {
  return !reshaped.first_dims.empty() &&
         std::all_of(reshaped.first_dims.begin(), reshaped.first_dims.end(),
                     [rows](int64_t n) { return n == rows || n == kJoined; });
}

// Moves the rows to their places among the rows of all ranks, and fills the gaps with zeros.
void PendingCollectives::PutInPlace(PendingCollective* pending) {
  for (size_t i = 0; i < pending->reshaped.size(); ++i) {
    const Reshaped& reshaped = pending->reshaped[i];
    if (reshaped.memory.empty()) continue;
    const TensorSpec& own = pending->request->tensors[i];
    const auto bytes = static_cast<size_t>(own.shape[0] * RowBytes(own));
    char* to = static_cast<char*>(pending->results[i].data);
    const char* from = reshaped.memory.data();
    for (int64_t n : reshaped.first_dims) {
      if (n == kJoined) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, from, bytes);
        from += bytes;
      }
      to += bytes;
    }
  }
}

void PendingCollectives::OnDone(const std::shared_ptr<PendingCollective>& pending,
                                const Status& status) {
  if (status.ok() && pending->why_reshaped.ok()) PutInPlace(pending.get());
  Several rest;
  {
    MutexLock lock(&mutex_);
    pending->over = true;
    pending->status = status.ok() ? pending->why_reshaped : status;
    if (!pending->status.ok() && WhyFailed(pending->run) == nullptr) {
      rest = UnderWay();
      FailRuns({pending}, pending->status);
      FailRuns(rest, pending->status);
    }
    if (pending->waiter != nullptr && --pending->waiter->left == 0)
      pending->waiter->changed.NotifyAll();
  }
  // TakeBack before this returns: the next execution uses the same names (see negotiation.md, error
  // epoch).
  TakeBack(rest);
}

void PendingCollectives::WaitFor(const Several& several) {
  Waiter waiter;
  waiter.several = &several;
  for (const auto& pending : several) {
    if (pending->over) continue;
    pending->waiter = &waiter;
    ++waiter.left;
  }
  waiters_.push_back(&waiter);
  while (waiter.left > 0) waiter.changed.Wait(&mutex_);
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
  for (const auto& pending : several) pending->waiter = nullptr;
}

// Returns the collectives that are not over.
PendingCollectives::Several PendingCollectives::UnderWay() const {
  Several all;
  for (const auto& [id, pending] : pending_) all.push_back(pending);
  for (const Waiter* waiter : waiters_) {
    all.insert(all.end(), waiter->several->begin(), waiter->several->end());
  }
  all.erase(std::remove_if(all.begin(), all.end(), [](const auto& each) { return each->over; }),
            all.end());
  return all;
}

Status PendingCollectives::Take(const std::vector<Id>& ids, const std::vector<void*>& outputs,
                                Several* taken) {
  std::vector<void*> expected;
  for (Id id : ids) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) {
      return failed_.empty() ? Status::Internal(
                                   "a compiled function waits for a collective that it never began")
                             : failed_.back().why;
    }
    for (const Result& result : found->second->results) expected.push_back(result.data);
    taken->push_back(found->second);
    pending_.erase(found);
  }
  if (expected == outputs) return Status::Ok();
  return Status::Internal(
      "XLA moved a tensor while a collective was writing it. Please report this with the versions "
      "of TensorFlow and tfhvd; until then use jit_compile=False");
}

// Makes these runs fail, so that they start no more collectives.
void PendingCollectives::FailRuns(const Several& several, const Status& why) {
  for (const auto& pending : several) {
    if (WhyFailed(pending->run) == nullptr) failed_.push_back({pending->run, why});
  }
  while (failed_.size() > kFailedRunsKept) failed_.pop_front();
}

// Has no effect on collectives that are over. Called without the mutex: Ask may complete a
// collective at once, which calls OnDone.
void PendingCollectives::TakeBack(const Several& several) {
  for (const auto& pending : several) {
    const EntryId entry = pending->withdrawal.Ask();
    if (entry != 0) CancelInJob(pending->engine.lock(), entry);
  }
}

// Returns null if the run has not failed.
const Status* PendingCollectives::WhyFailed(Run run) const {
  const auto found = std::find_if(failed_.begin(), failed_.end(),
                                  [run](const FailedRun& each) { return each.run == run; });
  return found == failed_.end() ? nullptr : &found->why;
}

PendingCollectives& ProcessPendingCollectives() {
  static auto* const pending =
      new PendingCollectives();  // never destroyed, as the engine's thread uses it
  return *pending;
}

}  // namespace tfhvd
