#include "cc/process/tickets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/flow/decision.h"
#include "cc/process/process.h"

namespace tfhvd {
namespace {

// A run that failed can begin something only until its other threads have come to rest.
constexpr size_t kFailedRunsKept = 256;

Status Cancelled() {
  return Status::Cancelled("another collective of a compiled function of this process failed.");
}

// There is no memory for a result of another shape on a GPU: that ends the job.
Status NoMemoryOnGpu(const Request& request, const std::string& why) {
  if (!why.empty()) return Status::InvalidArgument(why);
  return Status::InvalidArgument(
      std::string(CollectiveName(request.kind)) + " '" + request.key.name +
      "' of a compiled function cannot be done on a GPU while ranks have joined, having no data "
      "left. Expected: as many batches on every rank, or jit_compile=False.");
}

bool IsAllocatedLate(Collective kind) {
  return kind == Collective::kAllGather || kind == Collective::kReduceScatter ||
         kind == Collective::kAllToAll;
}

}  // namespace

Tickets::Run Tickets::Begin() {
  MutexLock lock(&mutex_);
  return ++last_run_;
}

Tickets::Id Tickets::Start(Run run, const std::shared_ptr<Engine>& engine, Entry entry,
                           std::vector<Result> results) {
  const auto ticket = std::make_shared<Ticket>();
  ticket->run = run;
  ticket->results = std::move(results);
  ticket->engine = engine;
  Id id;
  {
    MutexLock lock(&mutex_);
    id = ++last_id_;
    tickets_[id] = ticket;
    if (engine == nullptr || HasFailed(run)) {
      ticket->over = true;
      ticket->status = engine == nullptr ? NotInitialized() : Cancelled();
      return id;
    }
  }
  const bool late = IsAllocatedLate(entry.request->kind);
  entry.outputs.clear();
  for (const Result& result : ticket->results)
    entry.outputs.push_back(late ? nullptr : result.data);
  ticket->request = entry.request;
  ticket->astray.resize(ticket->results.size());
  if (entry.request->kind == Collective::kAllGather) {
    entry.EditExtras()->gathers = [ticket](int tensor, const std::vector<int64_t>& first_dims) {
      ticket->astray[static_cast<size_t>(tensor)].first_dims = first_dims;
    };
  }
  entry.allocate = [ticket](int tensor, const Shape& shape, void** output) {
    return Allocate(ticket.get(), static_cast<size_t>(tensor), shape, output);
  };
  if (entry.request->device != DeviceKind::kHost) {
    ticket->stream = entry.extras().stream;
    entry.EditExtras()->finished = [ticket](std::shared_ptr<void> end) {
      ticket->end = std::move(end);
    };
  }
  entry.done = [this, ticket](const Status& status) { OnDone(ticket, status); };
  const EntryId submitted = engine->Submit(std::move(entry));
  MutexLock lock(&mutex_);
  ticket->entry = submitted;
  // Failed meanwhile: EndRuns saw a ticket that it could not cancel yet.
  if (HasFailed(run) && !ticket->over) engine->Cancel(submitted);
  return id;
}

Status Tickets::Finish(const std::vector<Id>& ids, const std::vector<void*>& outputs,
                       void* stream) {
  std::vector<std::shared_ptr<Ticket>> taken;
  MutexLock lock(&mutex_);
  Status status = Take(ids, outputs, &taken);
  WaitFor(taken);
  for (const auto& ticket : taken) {
    if (status.ok()) status = ticket->status;
    const Status followed = Follow(*ticket, stream);
    if (status.ok()) status = followed;
  }
  if (!status.ok()) EndRuns(taken);
  return status;
}

Status Tickets::Follow(const Ticket& ticket, void* stream) {
  if (ticket.end == nullptr) return Status::Ok();
  const std::shared_ptr<Engine> engine = ticket.engine.lock();
  return engine == nullptr ? Status::Ok() : engine->Follow(stream, ticket.end);
}

void Tickets::Keep(const void* place, int64_t number) {
  MutexLock lock(&mutex_);
  kept_[place] = number;
}

std::optional<int64_t> Tickets::Kept(const void* place) const {
  MutexLock lock(&mutex_);
  const auto found = kept_.find(place);
  if (found == kept_.end()) return std::nullopt;
  return found->second;
}

size_t Tickets::size() const {
  MutexLock lock(&mutex_);
  return tickets_.size();
}

// On the engine's thread, which alone has the ticket's `astray` until it is over. The other ranks
// are in the collective already: it must have its memory and come to its end.
Status Tickets::Allocate(Ticket* ticket, size_t tensor, const Shape& shape, void** output) {
  const Request& request = *ticket->request;
  const Result& expected = ticket->results[tensor];
  *output = expected.data;
  if (shape == expected.shape) return Status::Ok();
  Astray* const astray = &ticket->astray[tensor];
  std::string why;
  if (!LacksJoinedAlone(*astray, request.tensors[tensor].shape[0])) {
    why = std::string("The ranks' first dimensions differ in ") + CollectiveName(request.kind) +
          " '" + request.key.name + "' of a compiled function. Received: a result of shape " +
          ShapeString(shape) + ". Expected: " + ShapeString(expected.shape) +
          ", as this rank's tensor has the shape " + ShapeString(request.tensors[tensor].shape) +
          " and XLA fixes shapes beforehand. Make them equal, by padding, or call it outside of "
          "jit_compile=True.";
  }
  if (request.device != DeviceKind::kHost) return NoMemoryOnGpu(request, why);
  const int64_t bytes = NumElements(shape) * ItemSize(request.tensors[tensor].dtype);
  astray->memory.resize(static_cast<size_t>(bytes));
  *output = astray->memory.data();
  if (!why.empty()) ticket->why_astray = why;
  return Status::Ok();
}

// Whether the result lacks the rows of ranks that have joined, and nothing else is odd about it.
bool Tickets::LacksJoinedAlone(const Astray& astray, int64_t rows) {
  return !astray.first_dims.empty() &&
         std::all_of(astray.first_dims.begin(), astray.first_dims.end(),
                     [rows](int64_t n) { return n == rows || n == kJoined; });
}

// Moves rows to where they would be had nobody joined, with zeros between.
void Tickets::PutInPlace(Ticket* ticket) {
  for (size_t i = 0; i < ticket->astray.size(); ++i) {
    const Astray& astray = ticket->astray[i];
    if (astray.memory.empty()) continue;
    const TensorSpec& own = ticket->request->tensors[i];
    const auto bytes = static_cast<size_t>(own.shape[0] * RowBytes(own));
    char* to = static_cast<char*>(ticket->results[i].data);
    const char* from = astray.memory.data();
    for (int64_t n : astray.first_dims) {
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

void Tickets::OnDone(const std::shared_ptr<Ticket>& ticket, const Status& status) {
  if (status.ok() && ticket->why_astray.empty()) PutInPlace(ticket.get());
  MutexLock lock(&mutex_);
  ticket->over = true;
  ticket->status = status.ok() && !ticket->why_astray.empty()
                       ? Status::InvalidArgument(ticket->why_astray)
                       : status;
  if (ticket->waiter != nullptr && --ticket->waiter->left == 0) ticket->waiter->changed.NotifyAll();
}

void Tickets::WaitFor(const std::vector<std::shared_ptr<Ticket>>& tickets) {
  Waiter waiter;
  for (const auto& ticket : tickets) {
    if (ticket->over) continue;
    ticket->waiter = &waiter;
    ++waiter.left;
  }
  while (waiter.left > 0) waiter.changed.Wait(&mutex_);
  for (const auto& ticket : tickets) ticket->waiter = nullptr;
}

Status Tickets::Take(const std::vector<Id>& ids, const std::vector<void*>& outputs,
                     std::vector<std::shared_ptr<Ticket>>* taken) {
  std::vector<void*> expected;
  for (Id id : ids) {
    const auto found = tickets_.find(id);
    if (found == tickets_.end()) {
      return failed_.empty() ? Status::Internal("a compiled function waits for what it never began")
                             : Cancelled();
    }
    for (const Result& result : found->second->results) expected.push_back(result.data);
    taken->push_back(found->second);
    tickets_.erase(found);
  }
  if (expected == outputs) return Status::Ok();
  return Status::Internal(
      "XLA moved a tensor while a collective was writing it. Please report this with the versions "
      "of TensorFlow and tfhvd; until then use jit_compile=False");
}

void Tickets::EndRuns(const std::vector<std::shared_ptr<Ticket>>& failed) {
  std::vector<std::shared_ptr<Ticket>> ended = failed;
  for (const auto& [id, ticket] : tickets_) ended.push_back(ticket);
  tickets_.clear();
  for (const auto& ticket : ended) {
    if (!HasFailed(ticket->run)) failed_.push_back(ticket->run);
    // Where Start is still submitting it, Start will see that the run has failed.
    if (ticket->over || ticket->entry == 0) continue;
    if (const std::shared_ptr<Engine> engine = ticket->engine.lock()) engine->Cancel(ticket->entry);
  }
  while (failed_.size() > kFailedRunsKept) failed_.pop_front();
  WaitFor(ended);
  // Their memory goes by the framework's streams, after what we do with it.
  for (const auto& ticket : ended) (void)Follow(*ticket, ticket->stream);
}

bool Tickets::HasFailed(Run run) const {
  return std::find(failed_.begin(), failed_.end(), run) != failed_.end();
}

Tickets& ProcessTickets() {
  static Tickets* const tickets = new Tickets();  // never destroyed, as the engine's thread uses it
  return *tickets;
}

}  // namespace tfhvd
