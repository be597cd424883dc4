#include "cc/backends/inproc/inproc_world.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/backends/inproc/call_barrier.h"
#include "cc/backends/inproc/inproc_communicator.h"
#include "cc/backends/inproc/mailboxes.h"
#include "cc/base/mutex.h"

namespace tfhvd {

// The state that ranks share: the barriers and mailboxes that some ranks have opened and others
// have not yet. Thread-safe.
class InprocState {
 public:
  explicit InprocState(int size) : size_(size) {}

  int size() const { return size_; }

  // Returns the n-th barrier of `members`; every caller gets the same one.
  std::shared_ptr<CallBarrier> FindBarrier(const std::vector<int>& members, int n) {
    const MutexLock lock(&mutex_);
    return Find(&barriers_, std::make_pair(members, n), static_cast<int>(members.size()));
  }

  std::shared_ptr<Mailboxes> FindMailboxes(int n) {
    const MutexLock lock(&mutex_);
    return Find(&mailboxes_of_, n, size_);
  }

  // Returns the n-th part of these ranks.
  std::shared_ptr<InprocState> FindPart(const std::vector<int>& ranks, int n) {
    const MutexLock lock(&mutex_);
    return Find(&parts_, std::make_pair(ranks, n), static_cast<int>(ranks.size()));
  }

  void Abort(const Status& why) {
    std::vector<std::shared_ptr<InprocState>> parts;
    std::vector<std::shared_ptr<CallBarrier>> barriers;
    std::vector<std::shared_ptr<Mailboxes>> several;
    {
      const MutexLock lock(&mutex_);
      if (aborted_.ok()) aborted_ = why;
      for (auto& [key, shared] : barriers_) {
        if (auto barrier = shared.lock()) barriers.push_back(std::move(barrier));
      }
      for (auto& [key, shared] : mailboxes_of_) {
        if (auto mailboxes = shared.lock()) several.push_back(std::move(mailboxes));
      }
      for (auto& [key, shared] : parts_) {
        if (auto part = shared.lock()) parts.push_back(std::move(part));
      }
    }
    for (const auto& part : parts) part->Abort(why);
    for (const auto& barrier : barriers) barrier->Abort(why);
    for (const auto& mailboxes : several) mailboxes->Abort(why);
  }

 private:
  // Keeps an object that one rank opened and closed before the next rank has asked for it, until
  // all have: see `held_`.
  template <typename Key, typename Shared>
  std::shared_ptr<Shared> Find(std::map<Key, std::weak_ptr<Shared>>* all, const Key& key, int users)
      TFHVD_REQUIRES(mutex_) {
    std::shared_ptr<Shared> found = (*all)[key].lock();
    if (found == nullptr) {
      found = std::make_shared<Shared>(users);
      if (!aborted_.ok()) found->Abort(aborted_);
      (*all)[key] = found;
      held_[found] = users;
    }
    const auto held = held_.find(found);
    // Otherwise there are more callers than users: one rank has opened some world twice.
    TFHVD_CHECK_EQ(held != held_.end(), true);
    if (--held->second == 0) held_.erase(held);
    return found;
  }

  const int size_;
  Mutex mutex_;
  std::map<std::pair<std::vector<int>, int>, std::weak_ptr<CallBarrier>> barriers_
      TFHVD_GUARDED_BY(mutex_);
  std::map<int, std::weak_ptr<Mailboxes>> mailboxes_of_ TFHVD_GUARDED_BY(mutex_);
  std::map<std::pair<std::vector<int>, int>, std::weak_ptr<InprocState>> parts_
      TFHVD_GUARDED_BY(mutex_);
  // Number of ranks that have yet to ask.
  std::map<std::shared_ptr<void>, int> held_ TFHVD_GUARDED_BY(mutex_);
  Status aborted_ TFHVD_GUARDED_BY(mutex_);
};

namespace {

class InprocControlPlane : public ControlPlane, private VoteBoard {
 public:
  InprocControlPlane(std::shared_ptr<Mailboxes> mailboxes, int rank)
      : mailboxes_(std::move(mailboxes)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return mailboxes_->size(); }

  Status Send(int to, std::string bytes) override {
    return mailboxes_->Put(to, {rank_, std::move(bytes)});
  }
  Status Receive(std::optional<Message>* message) override {
    return mailboxes_->Take(rank_, message);
  }
  bool Flushed() override { return true; }
  void Wait(std::chrono::nanoseconds timeout, bool) override {
    mailboxes_->waker(rank_)->WaitFor(timeout);
  }
  void Wake() override { mailboxes_->waker(rank_)->Wake(); }
  // A waker loses no wake-up, so there is nothing to do.
  bool can_run_inline() const override { return true; }
  VoteBoard* votes() override { return this; }

 private:
  int words() const override { return size(); }
  int own() const override { return rank_; }
  void Cast(uint64_t word) override { mailboxes_->Cast(rank_, word); }
  uint64_t Word(int index) const override { return mailboxes_->Word(index); }
  std::vector<int> RanksOf(int index) const override { return {index}; }
  void WakeOne(int index) override { mailboxes_->waker(index)->Wake(); }
  void Note(uint64_t word) override { mailboxes_->Cast(size(), word); }
  uint64_t noted() const override { return mailboxes_->Word(size()); }
  void WakeOthers() override {
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) mailboxes_->waker(r)->Wake();
    }
  }

  const std::shared_ptr<Mailboxes> mailboxes_;
  const int rank_;
};

class InprocWorld : public World {
 public:
  InprocWorld(std::shared_ptr<InprocState> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  const char* name() const override { return "inproc"; }
  std::string description() const override {
    return size() == 1 ? "this process alone" : std::to_string(size()) + " threads of one process";
  }
  int rank() const override { return rank_; }
  int size() const override { return state_->size(); }

  Status OpenPart(const std::vector<int>& ranks, std::unique_ptr<World>* out) override {
    int index = 0;
    TFHVD_RETURN_IF_ERROR(FindIndex(*this, ranks, &index));
    *out = std::make_unique<InprocWorld>(state_->FindPart(ranks, parts_opened_[ranks]++), index);
    return Status::Ok();
  }

  Status OpenControlPlane(std::unique_ptr<ControlPlane>* out) override {
    *out = std::make_unique<InprocControlPlane>(state_->FindMailboxes(planes_opened_++), rank_);
    return Status::Ok();
  }

  Status OpenCommunicator(const std::vector<int>& members,
                          std::unique_ptr<Communicator>* out) override {
    int index = 0;
    TFHVD_RETURN_IF_ERROR(FindMember(*this, members, &index));
    *out = std::make_unique<InprocCommunicator>(
        state_->FindBarrier(members, communicators_opened_[members]++), members, index);
    return Status::Ok();
  }

  Status Close() override { return Status::Ok(); }

 private:
  const std::shared_ptr<InprocState> state_;
  const int rank_;
  int planes_opened_ = 0;
  std::map<std::vector<int>, int> parts_opened_;
  std::map<std::vector<int>, int> communicators_opened_;
};

}  // namespace

InprocGroup::InprocGroup(int size) : state_(std::make_shared<InprocState>(size)) {}
InprocGroup::~InprocGroup() = default;

int InprocGroup::size() const { return state_->size(); }

std::unique_ptr<World> InprocGroup::OpenWorld(int rank) {
  return std::make_unique<InprocWorld>(state_, rank);
}

void InprocGroup::Abort(const Status& why) { state_->Abort(why); }

std::unique_ptr<World> MakeSoloWorld() { return InprocGroup(1).OpenWorld(0); }

}  // namespace tfhvd
