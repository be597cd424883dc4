// Listeners: the observers of one engine, as one. Passes each event to all that are on.
//
// Any thread; the list does not change.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cc/flow/observer.h"

namespace tfhvd {

class Listeners : public Observer {
 public:
  // Not owned.
  explicit Listeners(std::vector<Observer*> all) : all_(std::move(all)) { on_.store(true); }

  bool wants_ranks() const override {
    return std::any_of(all_.begin(), all_.end(),
                       [](const Observer* o) { return o->on() && o->wants_ranks(); });
  }

  void Submitted(const Entry& entry) override {
    Tell([&](Observer* o) { o->Submitted(entry); });
  }
  void RankReady(const Key& key, Collective kind, int rank, bool voted) override {
    Tell([&](Observer* o) {
      if (o->wants_ranks()) o->RankReady(key, kind, rank, voted);
    });
  }
  void TallyOver(const Key& key) override {
    Tell([&](Observer* o) {
      if (o->wants_ranks()) o->TallyOver(key);
    });
  }
  void WaitedFor(EntryId entry, int rank) override {
    Tell([&](Observer* o) { o->WaitedFor(entry, rank); });
  }
  void AgreedOn(const std::vector<Agreed>& together) override {
    Tell([&](Observer* o) { o->AgreedOn(together); });
  }
  void Begin(const std::vector<EntryId>& entries, const char* carrier, const char* call) override {
    Tell([&](Observer* o) { o->Begin(entries, carrier, call); });
  }
  void End(const std::vector<EntryId>& entries) override {
    Tell([&](Observer* o) { o->End(entries); });
  }
  void Done(EntryId entry, const Status& status) override {
    Tell([&](Observer* o) { o->Done(entry, status); });
  }
  void Announced(bool known) override {
    Tell([&](Observer* o) { o->Announced(known); });
  }
  void Carries(const Plan& plan) override {
    Tell([&](Observer* o) { o->Carries(plan); });
  }
  void StepLocked() override {
    Tell([](Observer* o) { o->StepLocked(); });
  }
  void BucketRuns() override {
    Tell([](Observer* o) { o->BucketRuns(); });
  }
  void StepUnlocked(UnlockReason why) override {
    Tell([&](Observer* o) { o->StepUnlocked(why); });
  }
  void RunsInline() override {
    Tell([](Observer* o) { o->RunsInline(); });
  }
  void Waited(int rank, double seconds) override {
    Tell([&](Observer* o) { o->Waited(rank, seconds); });
  }

 private:
  template <typename Event>
  void Tell(const Event& event) {
    for (Observer* observer : all_) {
      if (observer->on()) event(observer);
    }
  }

  const std::vector<Observer*> all_;
};

}  // namespace tfhvd
