// A job without engines: how several ranks agree, over a network that delivers late, and a
// record of what came out of each. For tests; one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/comm/control_plane.h"
#include "cc/engine/consensus.h"
#include "cc/negotiate/coordinator_server.h"
#include "cc/queue/submission_queue.h"
#include "tests/core/testing.h"

namespace tfhvd {

using Random = std::mt19937;

inline int Below(Random* random, int n) {
  return static_cast<int>((*random)() % static_cast<uint32_t>(n));
}

// Messages on their way: in order from one rank to another, but taken up when the test lets them.
struct Network {
  explicit Network(int n)
      : size(n), lines(static_cast<size_t>(n * n)), words(static_cast<size_t>(n), 0) {}
  std::deque<std::string>& Line(int from, int to) {
    return lines[static_cast<size_t>(from * size + to)];
  }
  bool Quiet() const {
    return std::all_of(lines.begin(), lines.end(), [](const auto& line) { return line.empty(); });
  }

  const int size;
  std::vector<std::deque<std::string>> lines;
  std::vector<uint64_t> words;  // that ranks vote with
};

class FakeControl : public ControlPlane, private VoteBoard {
 public:
  FakeControl(Network* network, int rank, Random* random)
      : network_(network),
        rank_(rank),
        random_(random),
        visible_(static_cast<size_t>(network->size), 0) {}

  int rank() const override { return rank_; }
  int size() const override { return network_->size; }
  Status Send(int to, std::string bytes) override {
    TFHVD_CHECK_EQ(to == rank_, false);
    network_->Line(rank_, to).push_back(std::move(bytes));
    return Status::Ok();
  }
  // Any sender's first message, or none although there are some.
  Status Receive(std::optional<Message>* message) override {
    message->reset();
    if (!prompt && Below(random_, 3) == 0) return Status::Ok();
    const int start = Below(random_, size());
    for (int i = 0; i < size(); ++i) {
      const int from = (start + i) % size();
      std::deque<std::string>& line = network_->Line(from, rank_);
      if (line.empty()) continue;
      *message = Message{from, std::move(line.front())};
      line.pop_front();
      return Status::Ok();
    }
    return Status::Ok();
  }
  bool Flushed() override { return !holds; }
  void Wait(std::chrono::nanoseconds, bool) override {}
  void Wake() override {}
  VoteBoard* votes() override { return this; }

  bool prompt = false;
  bool holds = false;  // what was sent never leaves: some rank takes no messages

 private:
  void Cast(uint64_t word) override { network_->words[static_cast<size_t>(rank_)] = word; }
  int words() const override { return size(); }
  int own() const override { return rank_; }
  std::vector<int> RanksOf(int place) const override { return {place}; }
  void WakeOne(int) override {}
  void Note(uint64_t) override {}
  uint64_t noted() const override { return 0; }
  // Another's word becomes visible some time after it was cast; some never do.
  uint64_t Word(int rank) const override {
    uint64_t& seen = visible_[static_cast<size_t>(rank)];
    if (rank == rank_ || prompt || Below(random_, 3) > 0) {
      seen = network_->words[static_cast<size_t>(rank)];
    }
    return seen;
  }
  void WakeOthers() override {}

  Network* const network_;  // Not owned.
  const int rank_;
  Random* const random_;                   // Not owned.
  mutable std::vector<uint64_t> visible_;  // by rank
};

// An event in a rank's life: what an engine would execute or complete.
struct Event {
  std::string name;
  int tag = 0;  // which occurrence, as the submitter counts
  bool ok = false;
  StatusCode code = StatusCode::kOk;
  int round = 0;  // what is agreed together is fused: it must be together on every rank

  bool operator==(const Event& o) const {
    return name == o.name && tag == o.tag && ok == o.ok && code == o.code && round == o.round;
  }
};

// One rank: its queue, its consensus and the record of what came out of it. Tags stay on the rank:
// that equal ones met is seen by comparing the ranks' records.
class Player {
  const Topology topology_;  // these before the consensus, which uses them
  const Log log_;
  ProcessSetTable sets_;
  SubmissionQueue queue_{[] {}};

 public:
  Player(const Config& config, Network* network, int rank, Random* random)
      : topology_(MakeTopology(rank, std::vector<std::string>(network->size, "host"))),
        log_(LogLevel::kFatal, rank),
        sets_(network->size),
        control(network, rank, random),
        server(rank == 0 ? std::make_unique<CoordinatorServer>(config, log_, topology_, &control,
                                                               control.votes() != nullptr)
                         : nullptr),
        consensus(config, log_, topology_, &sets_,
                  server != nullptr ? server->loopback() : &control, control.votes(), &queue_) {}

  EntryId Submit(const std::string& name, int tag, int64_t length, bool anonymous = false) {
    Entry entry;
    entry.request.Edit()->key.name = name;
    entry.request.Edit()->tensors.push_back({DType::kFloat32, {length}});
    entry.anonymous = anonymous;
    EntryId id = 0;
    EXPECT_OK(queue_.Push(&entry, &id));
    tags_[id] = tag;
    ++open;
    Take();
    return id;
  }

  void Cancel(EntryId id) {
    queue_.Cancel(id);
    Take();
  }

  void Step() { EXPECT_OK(Step(*now)); }

  // As an engine does it: on rank 0 the coordinator has its turn as well.
  Status Step(double at) {
    Consensus::Outcome outcome;
    Status status = consensus.Step(at, &outcome);
    bool answered = false;
    if (status.ok() && server != nullptr) status = server->Step(at, &answered);
    if (status.ok() && answered) status = consensus.Step(at, &outcome);
    Record(std::move(outcome));
    return status;
  }

  // The same out of a collective that has waited for so long.
  Status Wait(double waited) {
    TFHVD_RETURN_IF_ERROR(consensus.OnWait("allreduce 'x'", waited, *now));
    bool ignored = false;
    return server == nullptr ? Status::Ok() : server->Step(*now, &ignored);
  }

  std::vector<Event> executed;  // agreed, in order
  std::vector<Event> failed;
  std::vector<Event> fresh_failures;  // since they were last looked at
  std::set<EntryId> finished;
  int open = 0;
  double* now = nullptr;
  FakeControl control;
  std::unique_ptr<CoordinatorServer> server;  // rank 0's
  Consensus consensus;

 private:
  void Take() {
    SubmissionQueue::Batch batch;
    queue_.Drain(&batch);
    Consensus::Outcome outcome;
    consensus.Take(&batch, *now, &outcome);
    Record(std::move(outcome));
  }
  void Record(Consensus::Outcome outcome) {
    for (auto& [together, fusion] : outcome.agreed) {
      ++rounds_;
      for (Agreed& a : together) {
        EXPECT_TRUE(a.decision.verdict.ok());
        Finish(a.entry);
        executed.push_back(
            {a.entry.request->key.name, tags_[a.entry.id], true, StatusCode::kOk, rounds_});
      }
    }
    for (auto& [entry, status] : outcome.failed) {
      EXPECT_FALSE(status.ok());
      Finish(entry);
      failed.push_back({entry.request->key.name, tags_[entry.id], false, status.code()});
      fresh_failures.push_back(failed.back());
    }
  }
  void Finish(const Entry& entry) {
    EXPECT_TRUE(finished.insert(entry.id).second);  // once
    --open;
  }

  std::map<EntryId, int> tags_;
  int rounds_ = 0;
};

class Job {
 public:
  Job(int size, const Config& config, uint32_t seed) : random(seed), network(size) {
    for (int r = 0; r < size; ++r) {
      ranks.push_back(std::make_unique<Player>(config, &network, r, &random));
      ranks.back()->now = &now;
    }
  }
  int size() const { return network.size; }

  // A rank does what its engine does: a step, and now and then a wait in a collective after it.
  void StepOne(size_t r) {
    now += 0.001;
    ranks[r]->Step();
    if (Below(&random, 4) == 0) EXPECT_OK(ranks[r]->Wait(0.2));
  }
  void StepAny() { StepOne(static_cast<size_t>(Below(&random, size()))); }

  // Until nothing moves any more.
  void Settle() {
    for (int quiet = 0; quiet < 3;) {
      now += 1.0;
      for (auto& rank : ranks) {
        rank->control.prompt = true;
        rank->Step();
      }
      quiet = network.Quiet() ? quiet + 1 : 0;
    }
    for (auto& rank : ranks) rank->control.prompt = false;
  }

  void ExpectEqualSequences() const {
    for (const auto& rank : ranks) EXPECT_TRUE(rank->executed == ranks[0]->executed);
  }
  void ExpectNothingOpen() const {
    for (const auto& rank : ranks) EXPECT_EQ(rank->open, 0);
  }

  Random random;
  Network network;
  double now = 0.0;
  std::vector<std::unique_ptr<Player>> ranks;
};

}  // namespace tfhvd
