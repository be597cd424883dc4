#include "cc/execute/executor.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <string>

#include "cc/base/backoff.h"
#include "cc/execute/run_collective.h"

namespace tfhvd {
namespace {

using Clock = std::chrono::steady_clock;

// How long a failure of the accelerator waits for the name of the rank that caused it.
constexpr double kSecondsToName = 2.0;

// How long an accelerator may take to stop after an abort. Afterwards it can only touch memory of a
// failed job; a longer wait would be a hang.
constexpr std::chrono::seconds kRestSeconds(30);

// The least number of bytes that a result counts for a barrier: keeping a result takes more memory
// than its bytes.
constexpr int64_t kResultBytes = 16 << 10;

}  // namespace

Status Executor::Run(const std::vector<Plan>& plans, std::vector<Agreed> agreed) {
  std::vector<size_t> left(agreed.size(), 0);  // pieces to go, by entry
  for (const Plan& plan : plans) {
    for (const Piece& piece : plan.pieces) ++left[piece.agreed];
  }
  failed_.clear();
  std::vector<bool> touched(agreed.size(), false);  // by entry: a failed plan may still touch it
  Status broken;
  for (const Plan& plan : plans) {
    if (broken.ok()) {
      broken = RunPlan(plan, &agreed);
      if (!broken.ok()) {
        const bool on_accelerator = plan.device != DeviceKind::kHost;
        if (on_accelerator) broken = WithTheRank(broken);
        Break(broken, on_accelerator);
        if (!Settled()) Retain(plan, agreed, &touched);
      }
    }
    for (const Piece& piece : plan.pieces) {
      Agreed& a = agreed[piece.agreed];
      if (--left[piece.agreed] > 0) continue;
      if (touched[piece.agreed] && !a.entry.retain) {
        incomplete_.emplace_back(std::move(a.entry), broken);
        continue;
      }
      const auto& number = a.entry.extras().number;
      const Status status = VerdictOn(piece.agreed, broken);
      if (status.ok() && number) number(a.decision.number);
      phases_.Done(a.entry.id, status);
      passes_.End(std::move(a.entry), status, plan.device != DeviceKind::kHost);
    }
    if (!broken.ok()) continue;
    broken = BarrierAfter(plan);
    if (!broken.ok()) Break(broken, /*on_accelerator=*/false);
  }
  return broken;
}

// All ranks count the same bytes for a plan, so that the barrier comes at the same place.
Status Executor::BarrierAfter(const Plan& plan) {
  const bool of_all = plan.process_set == 0 && plan.device == DeviceKind::kHost;
  if (!passed_ || !of_all) return Status::Ok();
  const auto results = static_cast<int64_t>(plan.pieces.size());
  since_barrier_ += std::max(plan.bytes, results * kResultBytes);
  if (since_barrier_ < barrier_every_) return Status::Ok();
  since_barrier_ = 0;
  TFHVD_RETURN_IF_ERROR(communicators_.at(0)->Barrier());
  passed_();
  return Status::Ok();
}

Status Executor::Poll() {
  if (!retained_.empty() && Settled()) retained_.clear();
  // Asked first: a failure may also end the work.
  const bool rests = holds() && !accelerator_->busy();
  const Status status = WithTheRank(LookAtAccelerator());
  if (!status.ok()) Break(status, /*on_accelerator=*/true);
  if (!status.ok() || rests) passes_.ReleaseAll(status);
  return status;
}

Status Executor::LookAtAccelerator() {
  for (const auto& [process_set, communicator] : on_accelerator_) {
    if (communicator != nullptr) TFHVD_RETURN_IF_ERROR(communicator->Poll());
  }
  return Status::Ok();
}

// Looks for a failed peer by other means than the accelerator, which would wait for that peer's
// part of a collective for ever.
Status Executor::OnDeviceWait(double waited) {
  TFHVD_RETURN_IF_ERROR(LookAtAccelerator());
  if (waited < asked_at_) asked_at_ = 0.0;  // another wait
  if (monitor_ == nullptr || waited < asked_at_ + std::clamp(asked_at_, 0.001, 0.1)) {
    return Status::Ok();
  }
  asked_at_ = waited;
  Wait wait;
  wait.call = "work on the GPU";
  wait.seconds = waited;
  return monitor_->OnWait(wait);
}

// NCCL reports that a rank has ended, but not which one. The monitor of the peers, or another rank,
// reports it a moment later.
Status Executor::WithTheRank(const Status& failure) {
  if (failure.code() != StatusCode::kAborted || monitor_ == nullptr) return failure;
  const auto since = Clock::now();
  Wait wait;
  wait.call = "work on the GPU";
  for (Backoff backoff; wait.seconds < kSecondsToName; backoff.Pause()) {
    const Status named = monitor_->OnWait(wait);
    if (!named.ok()) return named;
    wait.seconds = std::chrono::duration<double>(Clock::now() - since).count();
  }
  return failure;
}

void Executor::SetWaitMonitor(WaitMonitor* monitor) {
  monitor_ = monitor;
  for (const auto& [process_set, communicator] : communicators_) {
    communicator->SetWaitMonitor(monitor);
  }
}

std::string Executor::doing() const {
  if (plan_ == nullptr || plan_->pieces.empty()) return "a collective";
  const Request& request = *(*agreed_)[static_cast<size_t>(plan_->pieces[0].agreed)].entry.request;
  const size_t others = plan_->pieces.size() - 1;
  return std::string(CollectiveName(request.kind)) + " '" + request.key.name + "'" +
         (others > 0 ? " and " + std::to_string(others) + " more" : "");
}

// Informs ranks that wait in a communicator of this rank at once, if possible. An abort frees the
// framework's streams, which wait for ours.
void Executor::Break(const Status& why, bool on_accelerator) {
  if (on_broken_) on_broken_(why);
  for (const auto& [process_set, communicator] : communicators_) communicator->Abort(why);
  if (on_accelerator) AbortAccelerator(why);
}

// Returns whether no communicator touches the memory of failed plans any more.
bool Executor::Settled() {
  bool settled = true;
  for (const auto& [process_set, communicator] : communicators_) {
    settled = communicator->settled() && settled;
  }
  return settled;
}

// Keeps the memory of a failed plan, if possible, and records its entries.
void Executor::Retain(const Plan& plan, const std::vector<Agreed>& agreed,
                      std::vector<bool>* touched) {
  for (const Piece& piece : plan.pieces) {
    if ((*touched)[piece.agreed]) continue;  // a group is kept as one
    (*touched)[piece.agreed] = true;
    const Entry& entry = agreed[piece.agreed].entry;
    if (entry.retain) retained_.push_back(entry.retain(Retained::kAll));
  }
}

void Executor::CompleteRest() {
  for (auto& [entry, why] : incomplete_) {
    phases_.Done(entry.id, why);
    entry.done(why);
  }
  incomplete_.clear();
}

Executor::~Executor() {
  if (retained_.empty() || Settled()) return;
  // Leaks memory that MPI still writes to.
  (void)new std::vector<std::shared_ptr<void>>(std::move(retained_));
}

void Executor::AbortAccelerator(const Status& why) {
  for (const auto& [process_set, communicator] : on_accelerator_) {
    if (communicator != nullptr) communicator->Abort(why);
  }
  if (accelerator_ == nullptr) return;
  const auto deadline = Clock::now() + kRestSeconds;
  for (Backoff backoff; accelerator_->busy() && Clock::now() < deadline;) backoff.Pause();
}

void Executor::Finish(const Status& lost, double seconds) {
  passes_.ReleaseAll(lost);
  if (!lost.ok()) {
    for (const auto& [process_set, communicator] : communicators_) communicator->Abort(lost);
    return AbortAccelerator(lost);
  }
  if (on_accelerator_.empty()) return;
  // Every rank has left. A rank that left because of an error may have aborted its part of a
  // collective that still runs here.
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (Backoff backoff; accelerator_->busy() && Clock::now() < deadline;) backoff.Pause();
  if (accelerator_->busy()) {
    AbortAccelerator(Status::Aborted("every rank has left the job, with a collective under way"));
  }
}

// Finds the device and the communicators for `plan`.
Status Executor::Choose(const Plan& plan, PlanContext* context) {
  const auto found = communicators_.find(plan.process_set);
  if (found == communicators_.end()) {
    return Status::Internal("there is no communicator for process set " +
                            std::to_string(plan.process_set));
  }
  *context = {host_, false, found->second, found->second, sets_, &phases_, &on_device_wait_};
  if (plan.device == DeviceKind::kHost) return Status::Ok();
  if (accelerator_ == nullptr) return Status::Internal("there is no device for GPU tensors");
  std::unique_ptr<Communicator>& own = on_accelerator_[plan.process_set];
  if (own == nullptr) {
    TFHVD_RETURN_IF_ERROR(backend_->Open(found->second, &own));
    own->SetWaitMonitor(monitor_);
  }
  context->device = accelerator_;
  context->on_accelerator = true;
  context->communicator = own.get();
  return Status::Ok();
}

Status Executor::RunPlan(const Plan& plan, std::vector<Agreed>* agreed) {
  plan_ = &plan;
  agreed_ = agreed;
  failpoints_.Hit(Failpoint::kCollectiveBegins);
  Status status = RunStages(plan, agreed);
  // The other ranks receive this text, so it names the rank that lacks something.
  const bool own =
      status.code() == StatusCode::kUnavailable && status.message().rfind("rank ", 0) != 0;
  if (own) {
    status = Status(status.code(), Named("cannot continue with " + doing()) + status.message());
  }
  plan_ = nullptr;
  return status;
}

// Returns "rank 1 <does so>: ".
std::string Executor::Named(const std::string& does) const {
  return "rank " + std::to_string(communicators_.at(0)->rank()) + " " + does + ": ";
}

Status Executor::RunStages(const Plan& plan, std::vector<Agreed>* agreed) {
  phases_.BeginPlan(plan, *agreed);
  PlanContext context;
  TFHVD_RETURN_IF_ERROR(Choose(plan, &context));
  for (const Piece& piece : plan.pieces) {
    const Entry& entry = (*agreed)[piece.agreed].entry;
    if (!entry.placeholder) TFHVD_RETURN_IF_ERROR(context.device->Await(entry.extras().ready));
  }
  PlanMemory memory;
  TFHVD_RETURN_IF_ERROR(GetMemory(context, plan, agreed, &memory));
  std::vector<int64_t> lacks;
  TFHVD_RETURN_IF_ERROR(ShareLacks(context, plan, memory, &lacks));
  if (!lacks.empty()) return RunWithout(plan, memory, lacks, agreed);
  TFHVD_RETURN_IF_ERROR(Enqueue(context, plan, *agreed, &memory));
  for (const Piece& piece : plan.pieces) {
    const Entry& entry = (*agreed)[piece.agreed].entry;
    if (!entry.placeholder) TFHVD_RETURN_IF_ERROR(LetFollow(entry, context.device));
  }
  return Status::Ok();
}

// Makes the framework's stream wait for the collective: now; or when the submitter wants, which
// then gets a mark (`finished`); or with the last entry of the backward pass.
Status Executor::LetFollow(const Entry& entry, Device* device) {
  const EntryExtras& extras = entry.extras();
  if (!extras.finished && extras.backward_pass.empty()) return device->Release(extras.stream);
  std::shared_ptr<void> mark;
  TFHVD_RETURN_IF_ERROR(device->MarkEnd(&mark));
  if (extras.finished) extras.finished(std::move(mark));
  return Status::Ok();
}

Status Executor::Enqueue(const PlanContext& context, const Plan& plan,
                         const std::vector<Agreed>& agreed, PlanMemory* memory) {
  switch (plan.kind) {
    case Collective::kJoin:
      return Status::Ok();  // the agreement is the whole work
    case Collective::kAddProcessSet:
      return AddProcessSet(agreed[plan.pieces[0].agreed]);
    case Collective::kRemoveProcessSet:
      return RemoveProcessSet(agreed[plan.pieces[0].agreed]);
    default:
      return RunCollective(context, plan, agreed, memory);
  }
}

// Called if some rank lacks memory. Runs each tensor separately, so that only those fail that have
// to.
Status Executor::RunWithout(const Plan& plan, const PlanMemory& memory,
                            const std::vector<int64_t>& lacks, std::vector<Agreed>* agreed) {
  if (plan.pieces.size() == 1) {
    const int index = plan.pieces[0].agreed;
    const Request& request = *(*agreed)[index].entry.request;
    const bool told = memory.lacks > 0 && memory.why.code() != StatusCode::kUnavailable;
    Status why = told ? memory.why : LackOf(request, *sets_->Find(plan.process_set), lacks);
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

Status Executor::AddProcessSet(const Agreed& agreed) {
  const int32_t id = static_cast<int32_t>(agreed.decision.number);
  const std::vector<int64_t>& ranks = agreed.entry.request->members;
  std::vector<int> members(ranks.begin(), ranks.end());
  const int me = communicators_.at(0)->rank();
  if (std::find(members.begin(), members.end(), me) != members.end()) {
    if (!open_) return Status::Unavailable("this engine cannot open process sets");
    TFHVD_RETURN_IF_ERROR(open_(members, &opened_[id]));
    opened_[id]->SetWaitMonitor(monitor_);
    communicators_[id] = opened_[id].get();
  }
  sets_->Put(id, std::move(members));
  return Status::Ok();
}

Status Executor::RemoveProcessSet(const Agreed& agreed) {
  const int32_t id = static_cast<int32_t>(agreed.decision.number);
  sets_->Remove(id);
  if (on_accelerator_.count(id) > 0) TFHVD_RETURN_IF_ERROR(accelerator_->Drain());
  on_accelerator_.erase(id);
  communicators_.erase(id);
  opened_.erase(id);
  return Status::Ok();
}

}  // namespace tfhvd
