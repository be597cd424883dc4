// What the negotiation costs as a job grows, counted: the messages and bytes of each rank's control
// plane in a steady step, on one host or on several, of real engines as threads, or of real
// ranks without engines in one thread for which no time passes; and rank 0's work for jobs too
// large for either: of real leaders that exchange votes in one thread, and of a real coordinator
// whose peers are played.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/collectives/hierarchical/envelope.h"
#include "cc/collectives/hierarchical/vote_exchange.h"
#include "cc/engine/consensus.h"
#include "cc/flow/codec.h"
#include "cc/negotiate/coordinator.h"
#include "cc/negotiate/coordinator_server.h"
#include "cc/queue/submission_queue.h"
#include "tests/core/engines.h"

namespace tfhvd {

struct Traffic {
  int64_t sent = 0;
  int64_t sent_bytes = 0;
  int64_t received = 0;
  int64_t received_bytes = 0;
  int64_t votes = 0;  // words cast where ranks vote without messages

  int64_t messages() const { return sent + received; }
  int64_t bytes() const { return sent_bytes + received_bytes; }
  Traffic Since(const Traffic& t) const {
    return {sent - t.sent, sent_bytes - t.sent_bytes, received - t.received,
            received_bytes - t.received_bytes, votes - t.votes};
  }
};

// Written by an engine's thread, read by any.
class Counters {
 public:
  void Sent(size_t bytes) {
    ++sent_;
    sent_bytes_ += static_cast<int64_t>(bytes);
  }
  void Received(size_t bytes) {
    ++received_;
    received_bytes_ += static_cast<int64_t>(bytes);
  }
  void Voted() { ++votes_; }
  Traffic Read() const { return {sent_, sent_bytes_, received_, received_bytes_, votes_}; }

 private:
  std::atomic<int64_t> sent_{0};
  std::atomic<int64_t> sent_bytes_{0};
  std::atomic<int64_t> received_{0};
  std::atomic<int64_t> received_bytes_{0};
  std::atomic<int64_t> votes_{0};
};

class CountingControlPlane : public ControlPlane, private VoteBoard {
 public:
  CountingControlPlane(std::unique_ptr<ControlPlane> inner, Counters* counters, bool may_vote)
      : inner_(std::move(inner)), counters_(counters), may_vote_(may_vote) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status Send(int to, std::string bytes) override {
    counters_->Sent(bytes.size());
    return inner_->Send(to, std::move(bytes));
  }
  Status Receive(std::optional<Message>* message) override {
    const Status status = inner_->Receive(message);
    if (status.ok() && message->has_value()) counters_->Received((*message)->bytes.size());
    return status;
  }
  bool Flushed() override { return inner_->Flushed(); }
  void Wait(std::chrono::nanoseconds timeout, bool expecting) override {
    inner_->Wait(timeout, expecting);
  }
  void Wake() override { inner_->Wake(); }
  VoteBoard* votes() override { return may_vote_ && inner_->votes() != nullptr ? this : nullptr; }

 private:
  void Cast(uint64_t word) override {
    counters_->Voted();
    inner_->votes()->Cast(word);
  }
  int words() const override { return inner_->votes()->words(); }
  int own() const override { return inner_->votes()->own(); }
  uint64_t Word(int place) const override { return inner_->votes()->Word(place); }
  std::vector<int> RanksOf(int place) const override { return inner_->votes()->RanksOf(place); }
  void WakeOthers() override { inner_->votes()->WakeOthers(); }
  void WakeOne(int place) override { inner_->votes()->WakeOne(place); }
  void Note(uint64_t word) override { inner_->votes()->Note(word); }
  uint64_t noted() const override { return inner_->votes()->noted(); }

  const std::unique_ptr<ControlPlane> inner_;
  Counters* const counters_;  // Not owned.
  const bool may_vote_;
};

// How a steady step is made: `tensors` submitted one after the other, all of them awaited.
struct Steady {
  int ranks = 2;
  int on_a_host = 0;  // so many ranks share a host; 0: all of them
  int tensors = 1;
  int warm_steps = 8;  // until everything is known by number
  int steps = 20;
  std::string prefix = "gradient";  // of the tensors' names
  bool may_vote = true;             // whether a step that repeats may do without messages
};

struct Growth {
  std::vector<Traffic> traffic;  // by rank, of all the counted steps
  double seconds = 0.0;          // of one step, the mean
};

namespace growth_internal {

// Where threads wait for each other, outside of what is measured.
class Gate {
 public:
  explicit Gate(int threads) : threads_(threads) {}
  void Pass(int time) {
    ++arrived_;
    while (arrived_ < threads_ * time) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
};

inline void RunSteps(Rank* rank, const Steady& how, int steps) {
  for (int step = 0; step < steps; ++step) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < how.tensors; ++i) {
      calls.push_back(AllReduce(rank, how.prefix + std::to_string(i), 4, 1.0f));
    }
    for (const std::unique_ptr<Call>& call : calls) {
      EXPECT_OK(call->Wait());
      EXPECT_TRUE(AllEqual(call->out, static_cast<float>(rank->size())));
    }
  }
}

}  // namespace growth_internal

// Runs engines as threads.
inline Growth MeasureGrowth(const Steady& how) {
  InprocGroup group(how.ranks);
  std::vector<int> hosts;
  for (int r = 0; r < how.ranks; ++r) hosts.push_back(r / std::max(1, how.on_a_host));
  std::vector<Counters> counters(static_cast<size_t>(how.ranks));
  Growth growth;
  growth.traffic.resize(static_cast<size_t>(how.ranks));
  growth_internal::Gate gate(how.ranks);
  testing::RunThreads(how.ranks, [&](int r) {
    Counters* own = &counters[static_cast<size_t>(r)];
    const Wrap count = [&, own](std::unique_ptr<ControlPlane> control) {
      return std::make_unique<CountingControlPlane>(std::move(control), own, how.may_vote);
    };
    const Wrap join = [&](std::unique_ptr<ControlPlane> control) {
      return JoinHosts(&group, r, hosts, std::move(control), count);
    };
    Rank rank(&group, r, Config(), how.on_a_host == 0 ? count : join);
    growth_internal::RunSteps(&rank, how, how.warm_steps);
    gate.Pass(1);
    const Traffic before = own->Read();
    gate.Pass(2);
    const auto begin = std::chrono::steady_clock::now();
    growth_internal::RunSteps(&rank, how, how.steps);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    gate.Pass(3);
    growth.traffic[static_cast<size_t>(r)] = own->Read().Since(before);
    if (r == 0) growth.seconds = taken.count() / how.steps;
    gate.Pass(4);  // To leave takes a message too.
  });
  return growth;
}

// The control planes of all ranks, counted.
inline std::vector<std::unique_ptr<ControlPlane>> OpenPlanes(const Steady& how,
                                                             std::vector<Counters>* counters) {
  InprocGroup group(how.ranks);
  std::vector<int> hosts;
  for (int r = 0; r < how.ranks; ++r) hosts.push_back(r / std::max(1, how.on_a_host));
  std::vector<std::unique_ptr<ControlPlane>> planes(static_cast<size_t>(how.ranks));
  testing::RunThreads(how.ranks, [&](int r) {
    const auto at = static_cast<size_t>(r);
    const Wrap count = [&, at](std::unique_ptr<ControlPlane> control) {
      return std::make_unique<CountingControlPlane>(std::move(control), &(*counters)[at],
                                                    how.may_vote);
    };
    std::unique_ptr<ControlPlane> control;
    EXPECT_OK(group.OpenWorld(r)->OpenControlPlane(&control));
    planes[at] = how.on_a_host == 0 ? count(std::move(control))
                                    : JoinHosts(&group, r, hosts, std::move(control), count);
  });
  return planes;
}

// Runs ranks without engines in turn, in one thread, at one and the same time: so no rank is ever
// late, as it is where a thread is kept from running, and what is counted is the same each time.
class TimelessJob {
 public:
  explicit TimelessJob(const Steady& how)
      : log_(LogLevel::kFatal, 0),
        sets_(how.ranks),
        counters_(static_cast<size_t>(how.ranks)),
        planes_(OpenPlanes(how, &counters_)) {
    for (int r = 0; r < how.ranks; ++r) {
      topologies_.push_back(MakeTopology(r, std::vector<std::string>(planes_.size(), "here")));
    }
    server_ = std::make_unique<CoordinatorServer>(Config(), log_, topologies_[0], planes_[0].get(),
                                                  planes_[0]->votes() != nullptr);
    for (size_t r = 0; r < planes_.size(); ++r) {
      MessageChannel* const channel = r == 0 ? server_->loopback() : planes_[r].get();
      queues_.push_back(std::make_unique<SubmissionQueue>([] {}));
      ranks_.push_back(std::make_unique<Consensus>(Config(), log_, topologies_[r], &sets_, channel,
                                                   planes_[r]->votes(), queues_.back().get()));
    }
    for (int i = 0; i < how.tensors; ++i) {
      requests_.emplace_back();
      requests_.back().Edit()->key.name = how.prefix + std::to_string(i);
      requests_.back().Edit()->tensors.push_back({DType::kFloat32, {4}});
    }
  }

  void RunSteps(int steps) {
    for (int step = 0; step < steps; ++step) RunStep();
  }

  std::vector<Traffic> Read() const {
    std::vector<Traffic> traffic;
    for (const Counters& counters : counters_) traffic.push_back(counters.Read());
    return traffic;
  }

 private:
  static constexpr double kNow = 0.0;

  void RunStep() {
    std::vector<size_t> agreed(ranks_.size(), 0);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const SharedRequest& request : requests_) {
        Entry entry;
        entry.request = request;
        EntryId id = 0;
        EXPECT_OK(queues_[r]->Push(&entry, &id));
      }
      SubmissionQueue::Batch batch;
      queues_[r]->Drain(&batch);
      Consensus::Outcome outcome;
      ranks_[r]->Take(&batch, kNow, &outcome);
      EXPECT_TRUE(outcome.failed.empty());
    }
    constexpr int kMostTurns = 1000;
    const auto all = [&] {
      return std::all_of(agreed.begin(), agreed.end(),
                         [this](size_t count) { return count == requests_.size(); });
    };
    for (int turn = 0; turn < kMostTurns && !all(); ++turn) {
      for (size_t r = 0; r < ranks_.size(); ++r) {
        Consensus::Outcome outcome;
        EXPECT_OK(ranks_[r]->Step(kNow, &outcome));
        bool ignored = false;
        if (r == 0) EXPECT_OK(server_->Step(kNow, &ignored));
        (void)planes_[r]->Flushed();
        for (const auto& together : outcome.agreed) agreed[r] += together.agreed.size();
      }
    }
    EXPECT_TRUE(all());
  }

  const Log log_;
  const ProcessSetTable sets_;
  std::vector<Counters> counters_;
  std::vector<std::unique_ptr<ControlPlane>> planes_;
  std::deque<Topology> topologies_;            // keep their addresses
  std::unique_ptr<CoordinatorServer> server_;  // rank 0's
  std::vector<std::unique_ptr<SubmissionQueue>> queues_;
  std::vector<std::unique_ptr<Consensus>> ranks_;
  std::vector<SharedRequest> requests_;
};

// What the counted steps of ranks for which no time passes cost; no seconds.
inline Growth CountSteps(const Steady& how) {
  TimelessJob job(how);
  job.RunSteps(how.warm_steps);
  const std::vector<Traffic> before = job.Read();
  job.RunSteps(how.steps);
  Growth growth;
  growth.traffic = job.Read();
  for (size_t r = 0; r < before.size(); ++r) {
    growth.traffic[r] = growth.traffic[r].Since(before[r]);
  }
  return growth;
}

// Leaders of `hosts` hosts exchange votes for `turns` turns of a locked schedule; rank 0's part,
// encoded and read as in a job: its messages, and the time that they take it.
inline Growth PlayLeaders(int hosts, int turns) {
  std::vector<VoteExchange> leaders;
  for (int h = 0; h < hosts; ++h) leaders.emplace_back(h, hosts);
  Growth growth;
  growth.traffic.resize(1);
  std::vector<std::vector<std::string>> heard;  // by rank 0, in each turn
  for (int turn = 0; turn < turns; ++turn) {
    std::deque<VoteExchange::VoteMessage> under_way;
    std::vector<VoteExchange::VoteMessage> messages;
    heard.emplace_back();
    std::vector<bool> decided(static_cast<size_t>(hosts), false);
    const auto tell = [&](int h) {
      messages.clear();
      const auto at = static_cast<size_t>(h);
      if (!decided[at]) decided[at] = leaders[at].Advance(Vote::kCommit, &messages);
      under_way.insert(under_way.end(), messages.begin(), messages.end());
    };
    for (int h = 0; h < hosts; ++h) tell(h);
    while (!under_way.empty()) {
      const VoteExchange::VoteMessage message = under_way.front();
      under_way.pop_front();
      leaders[static_cast<size_t>(message.to)].Receive(message.peer, message.word);
      if (message.to == 0) heard.back().push_back(EncodeVote(message.peer, message.word));
      tell(message.to);
    }
    EXPECT_TRUE(std::find(decided.begin(), decided.end(), false) == decided.end());
  }
  Traffic* traffic = &growth.traffic[0];
  VoteExchange own(0, hosts);
  std::vector<VoteExchange::VoteMessage> messages;
  const auto begin = std::chrono::steady_clock::now();
  for (const std::vector<std::string>& turn : heard) {
    bool decided = false;
    for (size_t i = 0; i <= turn.size(); ++i) {
      messages.clear();
      decided = own.Advance(Vote::kCommit, &messages);
      for (const VoteExchange::VoteMessage& message : messages) {
        ++traffic->sent;
        traffic->sent_bytes += static_cast<int64_t>(EncodeVote(message.peer, message.word).size());
      }
      if (i == turn.size()) break;
      int peer = 0;
      uint64_t word = 0;
      EXPECT_OK(DecodeVote(turn[i], own.peers(), &peer, &word));
      own.Receive(peer, word);
      ++traffic->received;
      traffic->received_bytes += static_cast<int64_t>(turn[i].size());
    }
    EXPECT_TRUE(decided);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  growth.seconds = taken.count() / turns;
  return growth;
}

// What a rank announces of `tensors` gradients that nobody has announced before.
inline Announcement FirstAnnouncement(int tensors) {
  Announcement first;
  for (int i = 0; i < tensors; ++i) {
    Request request;
    request.key.name = "gradient" + std::to_string(i);
    request.tensors.push_back({DType::kFloat32, {4}});
    first.requests.push_back(std::move(request));
  }
  return first;
}

// The first step of all, in which everything is said in full, with a real coordinator whose peers
// are played: rank 0's time and messages.
inline Growth PlayFirstStep(int ranks, int tensors) {
  Coordinator::Options options;
  options.hosts.assign(static_cast<size_t>(ranks), "host");
  Coordinator coordinator(std::move(options));
  const std::string announced = Encode(FirstAnnouncement(tensors));
  Growth growth;
  growth.traffic.resize(1);
  Traffic* traffic = &growth.traffic[0];
  const auto begin = std::chrono::steady_clock::now();
  for (int r = 0; r < ranks; ++r) {
    Announcement announcement;
    EXPECT_OK(Decode(announced, &announcement));
    EXPECT_OK(coordinator.Take(r, std::move(announcement), 0.0));
    if (r == 0) continue;
    ++traffic->received;
    traffic->received_bytes += static_cast<int64_t>(announced.size());
  }
  const Agreement* encoded = nullptr;
  std::string bytes;
  for (const auto& [to, agreement] : coordinator.Step(0.0)) {
    if (agreement.get() != encoded) bytes = Encode(*agreement);
    encoded = agreement.get();
    if (to == 0) continue;
    ++traffic->sent;
    traffic->sent_bytes += static_cast<int64_t>(bytes.size());
  }
  growth.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return growth;
}

// Rank 0's part of one step that is negotiated: its messages, and the time that it takes to read,
// count and answer them. The peers announce by number, and all that is sent is encoded and read as
// in a job.
inline Growth PlayStar(int ranks, int tensors, int steps) {
  Coordinator::Options options;
  options.hosts.assign(static_cast<size_t>(ranks), "host");
  Coordinator coordinator(std::move(options));
  const Announcement first = FirstAnnouncement(tensors);
  Announcement known;
  for (int r = 0; r < ranks; ++r) EXPECT_OK(coordinator.Take(r, first, 0.0));
  const auto agreed = coordinator.Step(0.0);
  for (const Agreement::Item& item : agreed.front().second->items) known.known.push_back(item.id);
  Growth growth;
  growth.traffic.resize(1);
  Traffic* traffic = &growth.traffic[0];
  const std::string announced = Encode(known);
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    EXPECT_OK(coordinator.Take(0, known, 0.0));
    for (int r = 1; r < ranks; ++r) {
      Announcement announcement;
      EXPECT_OK(Decode(announced, &announcement));
      EXPECT_OK(coordinator.Take(r, std::move(announcement), 0.0));
      ++traffic->received;
      traffic->received_bytes += static_cast<int64_t>(announced.size());
    }
    for (const auto& [to, agreement] : coordinator.Step(0.0)) {
      if (to == 0) continue;
      ++traffic->sent;
      traffic->sent_bytes += static_cast<int64_t>(Encode(*agreement).size());
    }
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  growth.seconds = taken.count() / steps;
  return growth;
}

}  // namespace tfhvd
