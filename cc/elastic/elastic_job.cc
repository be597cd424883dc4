#include "cc/elastic/elastic_job.h"

#include <limits>
#include <optional>
#include <utility>

#include "cc/elastic/generation_monitor.h"
#include "cc/elastic/reconciler.h"

namespace tfhvd {
namespace {

constexpr std::chrono::seconds kLook(1);  // how often to look for entries that have waited too long
// How long to wait for a new roster without a warning if the last one could not be adopted: the
// launcher notices a failed process at once, and an unreachable host after some seconds.
constexpr std::chrono::seconds kWarnAfter(10);
// The bytes of results that are kept for other ranks before a barrier releases them.
constexpr int64_t kHeldBytes = int64_t{32} << 20;

}  // namespace

ElasticJob::ElasticJob(Roster roster, std::shared_ptr<Engine> engine, Membership* membership,
                       Open open, Log log, std::chrono::nanoseconds limit, Failpoints failpoints)
    : membership_(membership),
      open_(std::move(open)),
      log_(log),
      limit_(limit),
      failpoints_(std::move(failpoints)),
      state_(std::move(roster), std::move(engine)) {
  if (state_.engine != nullptr) LetGoBy(state_.engine.get());
  thread_ = std::thread([this] { Run(); });
}

ElasticJob::~ElasticJob() { Stop(); }

void ElasticJob::Stop() {
  {
    const MutexLock lock(&state_.mutex);
    state_.stopped = true;
  }
  membership_->Stop();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  state_.FailAll([](const RetainedEntry& kept) { return kept.is_free(); }, MembersChange());
}

std::shared_ptr<Engine> ElasticJob::engine() const {
  const MutexLock lock(&state_.mutex);
  return state_.engine;
}

int ElasticJob::generation() const {
  const MutexLock lock(&state_.mutex);
  return state_.roster.generation;
}

int ElasticJob::admitted() const {
  const MutexLock lock(&state_.mutex);
  return state_.roster.admitted;
}

bool ElasticJob::WaitUntilIdle(std::chrono::nanoseconds most) const {
  const auto until = std::chrono::steady_clock::now() + most;
  const MutexLock lock(&state_.mutex);
  while (!state_.kept.empty()) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    state_.idle.WaitFor(&state_.mutex, left);
  }
  return true;
}

std::optional<int> ElasticJob::WaitForGeneration(int generation,
                                                 std::chrono::nanoseconds most) const {
  const MutexLock lock(&state_.mutex);
  if (state_.roster.generation <= generation && !state_.stopped)
    state_.changed.WaitFor(&state_.mutex, most);
  if (state_.roster.generation <= generation && state_.stopped) return std::nullopt;
  return state_.roster.generation;
}

std::optional<int> ElasticJob::RollBack(std::chrono::nanoseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  const MutexLock lock(&state_.mutex);
  while (!state_.takes_entries && !state_.stopped) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return std::nullopt;
    state_.changed.WaitFor(&state_.mutex, left);
  }
  if (state_.stopped) return std::nullopt;
  state_.refusal = Status::Ok();
  return state_.roster.generation;
}

// --- entries ---

EntryId ElasticJob::Submit(Entry&& entry) {
  Withdrawal* const withdrawal = std::exchange(entry.withdrawal, nullptr);
  const bool on_accelerator = entry.request->device != DeviceKind::kHost;
  RetainedPtr submitted = RetainedEntry::Make(std::move(entry), &blocks_);
  std::shared_ptr<Engine> engine;
  Entry given;
  Status refusal;
  EntryId number = 0;
  {
    const MutexLock lock(&state_.mutex);
    number = state_.next++;
    state_.by_commits = state_.by_commits || on_accelerator;
    refusal = state_.refusal;
    if (withdrawal != nullptr && !withdrawal->Take(number)) refusal = WasWithdrawn();
    if (refusal.ok()) {
      RetainedEntry* const kept = submitted.get();
      state_.kept.Add(number, std::move(submitted));
      if (state_.takes_entries || state_.stopped) engine = state_.engine;
      if (engine != nullptr) {
        given = Give(number, kept);
      } else {
        kept->waits_since = std::chrono::steady_clock::now();
      }
    }
  }
  if (submitted != nullptr) submitted->entry.done(refusal);
  if (engine != nullptr) (void)engine->Submit(std::move(given));
  return number;
}

void ElasticJob::SubmitTo(Engine* engine, EntryId number) {
  Entry given;
  {
    const MutexLock lock(&state_.mutex);
    RetainedEntry* const kept = state_.kept.Find(number);
    if (kept == nullptr || !kept->is_free()) return;
    given = Give(number, kept);
  }
  (void)engine->Submit(std::move(given));
}

Entry ElasticJob::Give(EntryId number, RetainedEntry* kept) {
  return kept->Give(state_.roster.generation, CallbacksOf(number));
}

// The callbacks find the entry by its number, because it may be done already.
RetainedEntry::Callbacks ElasticJob::CallbacksOf(EntryId number) {
  RetainedEntry::Callbacks callbacks;
  callbacks.allocate = [this, number](int tensor, const Shape& shape, void** output) {
    RetainedEntry* kept = nullptr;
    {
      const MutexLock lock(&state_.mutex);
      kept = state_.kept.Find(number);
    }
    // The engine has the entry, so it stays.
    if (kept == nullptr) return Status::Internal("a result comes after its end");
    TFHVD_RETURN_IF_ERROR(kept->entry.allocate(tensor, shape, output));
    kept->found->shapes[static_cast<size_t>(tensor)] = shape;
    kept->found->outputs[static_cast<size_t>(tensor)] = *output;
    return Status::Ok();
  };
  callbacks.gathers = [this, number](int tensor, const std::vector<int64_t>& first_dims) {
    const MutexLock lock(&state_.mutex);
    RetainedEntry* const kept = state_.kept.Find(number);
    if (kept == nullptr) return;
    kept->found->first_dims[static_cast<size_t>(tensor)] = first_dims;
    if (kept->entry.extras().gathers) kept->entry.extras().gathers(tensor, first_dims);
  };
  callbacks.number = [this, number](int64_t value) {
    const MutexLock lock(&state_.mutex);
    RetainedEntry* const kept = state_.kept.Find(number);
    if (kept == nullptr) return;
    kept->found->number = value;
    kept->entry.extras().number(value);
  };
  callbacks.done = [this, number](const Status& status) { OnDone(number, status); };
  return callbacks;
}

void ElasticJob::OnDone(EntryId number, const Status& status) {
  RetainedPtr over;
  std::shared_ptr<Engine> again;
  Status why = status;
  {
    const MutexLock lock(&state_.mutex);
    RetainedEntry* const kept = state_.kept.Find(number);
    if (kept == nullptr) return;  // a copy has completed it
    const bool waits = status.code() == StatusCode::kAborted && !state_.stopped &&
                       !kept->cancelled && (kept->survives() || state_.by_commits);
    if (waits && kept->generation >= state_.rolls_back_from) {
      // It waits for the next generation, which may exist already.
      if (state_.takes_entries && kept->generation != state_.roster.generation)
        again = state_.engine;
      kept->TakeBack(status);
    } else {
      if (waits) why = ContinuesFromCommit();
      if (status.ok()) failpoints_.Hit(Failpoint::kCollectiveWritten);
      state_.NoteResult(number, kept, status);
      if (status.ok()) failpoints_.Hit(Failpoint::kResultKept);
      over = state_.Remove(number);
    }
  }
  if (again != nullptr) SubmitTo(again.get(), number);
  if (over == nullptr) return;
  over->entry.done(why);
  if (why.ok()) failpoints_.Hit(Failpoint::kCollectiveDone);
}

// Adds barriers, because not all collectives wait for every rank: a loop of allgathers would
// otherwise keep all its results.
void ElasticJob::LetGoBy(Engine* engine) {
  engine->BarrierEvery(kHeldBytes, [this] {
    const MutexLock lock(&state_.mutex);
    state_.ledger.LetGo();
  });
}

void ElasticJob::Cancel(EntryId number) {
  RetainedPtr over;
  std::shared_ptr<Engine> engine;
  EntryId id = 0;
  {
    const MutexLock lock(&state_.mutex);
    RetainedEntry* const kept = state_.kept.Find(number);
    if (kept == nullptr) return;
    kept->cancelled = true;
    if (kept->is_free()) {
      over = state_.Remove(number);
    } else {
      engine = state_.engine;
      id = kept->withdrawal->Ask();
    }
  }
  if (over != nullptr) {
    over->entry.done(Status::Cancelled("the step was cancelled while the members changed"));
  } else if (id != 0) {
    engine->Cancel(id);
  }
}

// --- the thread that follows the membership ---

void ElasticJob::Run() {
  int seen = generation();
  Status taken;                                   // why `seen` was not adopted; ok: it was
  std::chrono::steady_clock::time_point warn_at;  // for `taken`
  while (true) {
    std::optional<Roster> roster;
    const Status status = membership_->Next(seen, kLook, &roster);
    {
      const MutexLock lock(&state_.mutex);
      if (state_.stopped) return state_.changed.NotifyAll();
      state_.stopped = !status.ok();
    }
    const auto is_free = [](const RetainedEntry& kept) { return kept.is_free(); };
    if (!status.ok()) {
      state_.FailAll(is_free, status);
      continue;
    }
    if (roster.has_value()) {
      seen = roster->generation;
      failpoints_.Hit(Failpoint::kRosterRead);
      taken = AdoptGeneration(*roster);
      warn_at = std::chrono::steady_clock::now() + kWarnAfter;
      if (!taken.ok()) log_.Info("generation " + std::to_string(seen) + ": " + taken.message());
      if (taken.code() == StatusCode::kFailedPrecondition) GiveUpIfNew();
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!taken.ok() && now >= warn_at) {
      warn_at = std::chrono::steady_clock::time_point::max();
      log_.Warning("The members of generation " + std::to_string(seen) +
                   " cannot continue together (" + taken.message() +
                   "), and no later one has been announced. If the job hangs, end it.");
    }
    const auto since = now - limit_;
    state_.FailAll(
        [&](const RetainedEntry& kept) { return is_free(kept) && kept.waits_since < since; },
        MembersChange());
  }
}

// If no rank is left with the state of the training, there is nothing to join.
void ElasticJob::GiveUpIfNew() {
  const MutexLock lock(&state_.mutex);
  state_.stopped = state_.stopped || state_.engine == nullptr;
}

Status ElasticJob::AdoptGeneration(const Roster& roster) {
  std::shared_ptr<Engine> engine;
  Roster before;
  {
    const MutexLock lock(&state_.mutex);
    state_.takes_entries = false;
    engine = state_.engine;
    before = state_.roster;
  }
  if (engine != nullptr) {
    engine->Abandon(MembersChange());
    (void)engine->WaitUntilOver(std::numeric_limits<double>::infinity());
  }
  failpoints_.Hit(Failpoint::kEngineAbandoned);
  GenerationMonitor monitor(membership_, roster.generation);
  std::shared_ptr<Engine> opened;
  TFHVD_RETURN_IF_ERROR(open_(
      roster, &monitor,
      [&](Communicator* everyone) {
        return Reconciler(&state_, log_, failpoints_).Run(before, roster, everyone);
      },
      &opened));
  LetGoBy(opened.get());
  {
    const MutexLock lock(&state_.mutex);
    state_.engine = opened;
    state_.roster = roster;
  }
  failpoints_.Hit(Failpoint::kEngineTaken);
  Resubmit(opened);
  failpoints_.Hit(Failpoint::kEntriesTaken);
  return Status::Ok();
}

// Submits waiting entries in the order of submission; entries that arrive meanwhile come after
// them.
void ElasticJob::Resubmit(const std::shared_ptr<Engine>& engine) {
  EntryId last = 0;
  while (true) {
    {
      const MutexLock lock(&state_.mutex);
      last = state_.kept.NextAfter(last, [](const RetainedEntry& kept) { return kept.is_free(); });
      if (last == 0 || state_.stopped || !engine->health().ok()) {
        state_.takes_entries = true;
        state_.changed.NotifyAll();
        return;
      }
    }
    SubmitTo(engine.get(), last);
    failpoints_.Hit(Failpoint::kEntryResubmitted);
  }
}

}  // namespace tfhvd
