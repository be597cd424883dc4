#include "cc/elastic/elastic_job.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "cc/elastic/later_generation.h"
#include "cc/elastic/roster_change.h"
#include "cc/elastic/share_outcomes.h"

namespace tfhvd {
namespace {

constexpr std::chrono::seconds kLook(1);  // how often entries that wait in vain are looked for

}  // namespace

ElasticJob::ElasticJob(Roster roster, std::shared_ptr<Engine> engine, Membership* membership,
                       Open open, Log log, std::chrono::nanoseconds limit)
    : membership_(membership),
      open_(std::move(open)),
      log_(log),
      limit_(limit),
      engine_(std::move(engine)),
      roster_(std::move(roster)) {
  thread_ = std::thread([this] { Run(); });
}

ElasticJob::~ElasticJob() { Stop(); }

void ElasticJob::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
  }
  membership_->Stop();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  FailAll([](const KeptEntry& kept) { return kept.is_free(); }, MembersChange());
}

std::shared_ptr<Engine> ElasticJob::engine() const {
  const MutexLock lock(&mutex_);
  return engine_;
}

int ElasticJob::generation() const {
  const MutexLock lock(&mutex_);
  return roster_.generation;
}

int ElasticJob::admitted() const {
  const MutexLock lock(&mutex_);
  return roster_.admitted;
}

bool ElasticJob::WaitUntilIdle(std::chrono::nanoseconds most) const {
  const auto until = std::chrono::steady_clock::now() + most;
  const MutexLock lock(&mutex_);
  while (!kept_.empty()) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    idle_.WaitFor(&mutex_, left);
  }
  return true;
}

std::optional<int> ElasticJob::WaitForGeneration(int generation,
                                                 std::chrono::nanoseconds most) const {
  const MutexLock lock(&mutex_);
  if (roster_.generation <= generation && !stopped_) changed_.WaitFor(&mutex_, most);
  if (roster_.generation <= generation && stopped_) return std::nullopt;
  return roster_.generation;
}

// --- entries ---

ElasticJob::KeptPtr ElasticJob::Remove(EntryId number) {
  KeptPtr kept = kept_.Remove(number);
  if (kept_.empty()) idle_.NotifyAll();
  return kept;
}

EntryId ElasticJob::Submit(Entry&& entry) {
  Withdrawal* const withdrawal = std::exchange(entry.withdrawal, nullptr);
  auto submitted = std::make_unique<KeptEntry>(std::move(entry));
  std::shared_ptr<Engine> engine;
  Given given;
  EntryId number = 0;
  {
    const MutexLock lock(&mutex_);
    number = next_++;
    if (withdrawal == nullptr || withdrawal->Take(number)) {
      KeptEntry* const kept = submitted.get();
      kept_.Add(number, std::move(submitted));
      if (takes_entries_ || stopped_) engine = engine_;
      if (engine != nullptr) {
        Give(number, kept, &given);
      } else {
        kept->waits_since = std::chrono::steady_clock::now();
      }
    }
  }
  if (submitted != nullptr) submitted->entry.done(WasWithdrawn());
  if (engine != nullptr) Pass(engine.get(), &given);
  return number;
}

void ElasticJob::SubmitTo(Engine* engine, EntryId number) {
  Given given;
  {
    const MutexLock lock(&mutex_);
    KeptEntry* const kept = kept_.Find(number);
    if (kept == nullptr || !kept->is_free()) return;
    Give(number, kept, &given);
  }
  Pass(engine, &given);
}

void ElasticJob::Give(EntryId number, KeptEntry* kept, Given* given) {
  given->number = number;
  given->generation = roster_.generation;
  given->entry = kept->Give(given->generation, CallbacksOf(number));
  given->entry.withdrawal = kept->withdrawal = &given->withdrawal;
}

// `given` lives until the engine has it: only then is there an id by which to cancel it.
void ElasticJob::Pass(Engine* engine, Given* given) {
  const EntryId id = engine->Submit(std::move(given->entry));
  const MutexLock lock(&mutex_);
  KeptEntry* const kept = kept_.Find(given->number);
  if (kept == nullptr || kept->generation != given->generation) return;
  kept->id = id;
  kept->withdrawal = nullptr;
}

// They find the entry by its number: it may be done by then.
KeptEntry::Callbacks ElasticJob::CallbacksOf(EntryId number) {
  KeptEntry::Callbacks callbacks;
  callbacks.allocate = [this, number](int tensor, const Shape& shape, void** output) {
    KeptEntry* kept = nullptr;
    {
      const MutexLock lock(&mutex_);
      kept = kept_.Find(number);
    }
    // The engine has it, so that it stays.
    if (kept == nullptr) return Status::Internal("a result comes after its end");
    TFHVD_RETURN_IF_ERROR(kept->entry.allocate(tensor, shape, output));
    kept->found->shapes[static_cast<size_t>(tensor)] = shape;
    kept->found->outputs[static_cast<size_t>(tensor)] = *output;
    return Status::Ok();
  };
  callbacks.gathers = [this, number](int tensor, const std::vector<int64_t>& first_dims) {
    const MutexLock lock(&mutex_);
    KeptEntry* const kept = kept_.Find(number);
    if (kept == nullptr) return;
    kept->found->first_dims[static_cast<size_t>(tensor)] = first_dims;
    if (kept->entry.extras().gathers) kept->entry.extras().gathers(tensor, first_dims);
  };
  callbacks.number = [this, number](int64_t value) {
    const MutexLock lock(&mutex_);
    KeptEntry* const kept = kept_.Find(number);
    if (kept == nullptr) return;
    kept->found->number = value;
    kept->entry.extras().number(value);
  };
  callbacks.done = [this, number](const Status& status) { OnDone(number, status); };
  return callbacks;
}

void ElasticJob::OnDone(EntryId number, const Status& status) {
  KeptPtr over;
  std::shared_ptr<Engine> again;
  {
    const MutexLock lock(&mutex_);
    KeptEntry* const kept = kept_.Find(number);
    if (kept == nullptr) return;  // a copy has done it
    const bool lost = status.code() == StatusCode::kAborted;
    if (lost && !stopped_ && !kept->cancelled && kept->survives()) {
      // The next generation is for it; maybe that is there.
      if (takes_entries_ && kept->generation != roster_.generation) again = engine_;
      kept->TakeBack(status);
    } else {
      if (status.ok()) NoteResult(number, kept);
      over = Remove(number);
    }
  }
  if (again != nullptr) SubmitTo(again.get(), number);
  if (over != nullptr) over->entry.done(status);
}

void ElasticJob::NoteResult(EntryId number, KeptEntry* kept) {
  if (!kept->survives() || roster_.size() == 1) return;
  ledger_.Done(kept->ResultOf(), number, next_);
}

void ElasticJob::Cancel(EntryId number) {
  KeptPtr over;
  std::shared_ptr<Engine> engine;
  EntryId id = 0;
  {
    const MutexLock lock(&mutex_);
    KeptEntry* const kept = kept_.Find(number);
    if (kept == nullptr) return;
    kept->cancelled = true;
    if (kept->is_free()) {
      over = Remove(number);
    } else {
      engine = engine_;
      id = kept->withdrawal != nullptr ? kept->withdrawal->Ask() : kept->id;
    }
  }
  if (over != nullptr) {
    over->entry.done(Status::Cancelled("the step was cancelled while the members changed"));
  } else if (id != 0) {
    engine->Cancel(id);
  }
}

void ElasticJob::FailAll(const std::function<bool(const KeptEntry&)>& which, const Status& why) {
  std::vector<KeptPtr> failed;
  {
    const MutexLock lock(&mutex_);
    for (EntryId next = kept_.NextAfter(0, which); next != 0; next = kept_.NextAfter(next, which)) {
      failed.push_back(Remove(next));
    }
  }
  for (const KeptPtr& kept : failed) kept->entry.done(kept->why.ok() ? why : kept->why);
}

// --- the thread that follows the membership ---

void ElasticJob::Run() {
  int seen = generation();
  while (true) {
    std::optional<Roster> roster;
    const Status status = membership_->Next(seen, kLook, &roster);
    {
      const MutexLock lock(&mutex_);
      if (stopped_) return changed_.NotifyAll();
      stopped_ = !status.ok();
    }
    const auto is_free = [](const KeptEntry& kept) { return kept.is_free(); };
    if (!status.ok()) {
      FailAll(is_free, status);
      continue;
    }
    if (roster.has_value()) {
      seen = roster->generation;
      const Status taken = TakeUp(*roster);
      if (!taken.ok()) log_.Info("generation " + std::to_string(seen) + ": " + taken.message());
      if (taken.code() == StatusCode::kFailedPrecondition) GiveUpIfNew();
      continue;
    }
    const auto since = std::chrono::steady_clock::now() - limit_;
    FailAll([&](const KeptEntry& kept) { return is_free(kept) && kept.waits_since < since; },
            MembersChange());
  }
}

// Where nobody is left who has the state of the training, nothing can be joined.
void ElasticJob::GiveUpIfNew() {
  const MutexLock lock(&mutex_);
  stopped_ = stopped_ || engine_ == nullptr;
}

Status ElasticJob::TakeUp(const Roster& roster) {
  std::shared_ptr<Engine> engine;
  Roster before;
  {
    const MutexLock lock(&mutex_);
    takes_entries_ = false;
    engine = engine_;
    before = roster_;
  }
  if (engine != nullptr) {
    engine->Abandon(MembersChange());
    (void)engine->WaitUntilOver(std::numeric_limits<double>::infinity());
  }
  LaterGeneration monitor(membership_, roster.generation);
  std::shared_ptr<Engine> opened;
  TFHVD_RETURN_IF_ERROR(open_(
      roster, &monitor,
      [&](Communicator* everyone) { return ReconcileWith(before, roster, everyone); }, &opened));
  {
    const MutexLock lock(&mutex_);
    engine_ = opened;
    roster_ = roster;
  }
  Resubmit(opened);
  return Status::Ok();
}

Status ElasticJob::ReconcileWith(const Roster& before, const Roster& roster,
                                 Communicator* everyone) {
  int64_t copied = 0;
  bool some_are_new = false;
  TFHVD_RETURN_IF_ERROR(ShareOutcomes(
      OwnPosition(), everyone, [this](const Turn& turn, char* data) { return Fetch(turn, data); },
      [this](const Outcome& outcome, const char* data) { Take(outcome, data); }, &copied,
      &some_are_new));
  if (some_are_new) TFHVD_RETURN_IF_ERROR(ShareCountsWith(everyone));
  // All of them have come so far: what is left is done anew, by all.
  {
    const MutexLock lock(&mutex_);
    kept_.ForEach([&](KeptEntry* kept) { kept->RenumberRoot(before, roster); });
  }
  FailAll([](const KeptEntry& kept) { return kept.root_is_lost; }, MembersChange());
  if (roster.rank == 0) {
    const RosterChange change = Compare(before, roster);
    const std::string text = Describe(change, roster);
    if (change.lost.empty()) {
      log_.Info(text);
    } else {
      log_.Warning(text + " Collectives that a survivor had, and others got from it: " +
                   std::to_string(copied));
    }
  }
  return Status::Ok();
}

Status ElasticJob::ShareCountsWith(Communicator* everyone) {
  std::string own;
  {
    const MutexLock lock(&mutex_);
    if (engine_ != nullptr) own = ledger_.EncodeCounts();
  }
  std::string counts;
  TFHVD_RETURN_IF_ERROR(ShareCounts(own, everyone, &counts));
  if (!own.empty()) return Status::Ok();
  const MutexLock lock(&mutex_);
  return ledger_.TakeOverCounts(counts);
}

Position ElasticJob::OwnPosition() {
  Position position;
  const MutexLock lock(&mutex_);
  position.is_new = engine_ == nullptr;
  std::unordered_map<std::string, int64_t> counts;
  const auto survives = [](const KeptEntry& kept) { return kept.survives(); };
  for (EntryId next = kept_.NextAfter(0, survives); next != 0;
       next = kept_.NextAfter(next, survives)) {
    const std::string& name = kept_.Find(next)->request().key.name;
    position.waits.push_back(ledger_.TurnOf(name, counts[name]++));
  }
  for (const Ledger::Result& result : ledger_.results()) position.has.push_back(result.outcome());
  return position;
}

Status ElasticJob::Fetch(const Turn& turn, char* data) {
  const MutexLock lock(&mutex_);
  const Ledger::Result* const result = ledger_.Find(turn);
  if (result == nullptr) return Status::Internal("a result is gone that others wait for");
  result->CopyTo(data);
  return Status::Ok();
}

// Ends the entry that waits for this outcome, if there is one: no engine has it.
void ElasticJob::Take(const Outcome& outcome, const char* data) {
  EntryId number = 0;
  KeptPtr over;
  {
    const MutexLock lock(&mutex_);
    // Of this name the first that waits is next: copies of a name come in their order.
    number = kept_.NextAfter(0, [&outcome](const KeptEntry& kept) {
      return kept.survives() && kept.request().key.name == outcome.turn.name;
    });
    if (number == 0 || !(ledger_.TurnOf(outcome.turn.name, 0) == outcome.turn)) return;
    over = Remove(number);
  }
  const Status status = over->TakeCopy(outcome, data);
  if (status.ok()) {
    const MutexLock lock(&mutex_);
    NoteResult(number, over.get());
  }
  over->entry.done(status);
}

// In the order of submission; what comes meanwhile waits for its turn.
void ElasticJob::Resubmit(const std::shared_ptr<Engine>& engine) {
  EntryId last = 0;
  while (true) {
    {
      const MutexLock lock(&mutex_);
      last = kept_.NextAfter(last, [](const KeptEntry& kept) { return kept.is_free(); });
      if (last == 0 || stopped_ || !engine->health().ok()) {
        takes_entries_ = true;
        changed_.NotifyAll();
        return;
      }
    }
    SubmitTo(engine.get(), last);
  }
}

}  // namespace tfhvd
