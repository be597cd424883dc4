// Engines as threads of one process, over the inproc backend, and collectives to give to them.
#pragma once

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/base/mutex.h"
#include "cc/engine/engine.h"
#include "tests/core/hosts.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {

// Puts something around the communicator of these ranks.
using WrapCommunicator = std::function<std::unique_ptr<Communicator>(
    const std::vector<int>& members, std::unique_ptr<Communicator>)>;

// One rank's engine, for the thread that plays it.
class Rank {
 public:
  Rank(InprocGroup* group, int rank, const Config& config, const Wrap& wrap = nullptr,
       const WrapCommunicator& around = nullptr, std::vector<int> pids = {})
      : world_(group->OpenWorld(rank)) {
    std::unique_ptr<ControlPlane> control;
    std::unique_ptr<Communicator> communicator;
    EXPECT_TRUE(world_->OpenControlPlane(&control).ok());
    if (wrap) control = wrap(std::move(control));
    EXPECT_TRUE(world_->OpenCommunicator(testing::AllOf(world_->size()), &communicator).ok());
    if (around) communicator = around(testing::AllOf(world_->size()), std::move(communicator));
    Topology topology = MakeTopology(rank, std::vector<std::string>(world_->size(), "here"));
    topology.pids = std::move(pids);
    engine_ = std::make_unique<Engine>(
        config, Log(LogLevel::kFatal, rank), std::move(topology), std::move(control),
        std::move(communicator), Accelerator(),
        [this, around](const std::vector<int>& members, std::unique_ptr<Communicator>* out) {
          TFHVD_RETURN_IF_ERROR(world_->OpenCommunicator(members, out));
          if (around) *out = around(members, std::move(*out));
          return Status::Ok();
        });
  }

  int rank() const { return engine_->topology().rank; }
  int size() const { return engine_->topology().size; }
  Engine* engine() { return engine_.get(); }

  // As a kernel does: what equals the last request of its name is that one. Any thread.
  SharedRequest Kept(const SharedRequest& request) TFHVD_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    SharedRequest& kept = kept_[request->key.name];
    if (kept.get() == nullptr || !(*kept == *request)) kept = request;
    return kept;
  }

 private:
  Mutex mutex_;
  std::map<std::string, SharedRequest> kept_ TFHVD_GUARDED_BY(mutex_);
  std::unique_ptr<World> world_;
  std::unique_ptr<Engine> engine_;
};

inline void RunRanks(int size, const std::function<void(Rank*)>& body,
                     const Config& config = Config()) {
  InprocGroup group(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(&group, r, config);
      body(&rank);
    });
  }
  for (std::thread& t : threads) t.join();
}

// A collective in flight, with its memory.
struct Call {
  std::vector<float> in;
  std::vector<float> out;
  std::promise<Status> promise;
  EntryId id = 0;

  Status Wait() { return promise.get_future().get(); }
};

inline Entry EntryFor(Call* call, Collective kind, const std::string& name, Shape shape) {
  Entry entry;
  entry.request.Edit()->key.name = name;
  entry.request.Edit()->kind = kind;
  entry.request.Edit()->tensors.push_back({DType::kFloat32, std::move(shape)});
  entry.inputs.push_back(call->in.data());
  entry.outputs.push_back(call->out.data());
  entry.allocate = [call](int, const Shape& s, void** out) {
    call->out.resize(static_cast<size_t>(NumElements(s)));
    *out = call->out.data();
    return Status::Ok();
  };
  entry.done = [call](const Status& s) { call->promise.set_value(s); };
  return entry;
}

inline std::unique_ptr<Call> AllReduce(Rank* rank, const std::string& name, size_t n, float value,
                                       bool anonymous = false) {
  auto call = std::make_unique<Call>();
  call->in.assign(n, value);
  call->out.assign(n, -1.0f);
  Entry entry = EntryFor(call.get(), Collective::kAllReduce, name, {static_cast<int64_t>(n)});
  entry.request = rank->Kept(entry.request);
  entry.anonymous = anonymous;
  call->id = rank->engine()->Submit(std::move(entry));
  return call;
}

// What all ranks agree on besides collectives: `kind` with these members; the number that comes
// back.
inline Status AgreeOn(Rank* rank, Collective kind, std::vector<int64_t> members, int64_t* number) {
  Call call;
  Entry entry;
  entry.request.Edit()->key.name = kind == Collective::kJoin ? "tfhvd.join" : "tfhvd.process_sets";
  entry.request.Edit()->kind = kind;
  entry.request.Edit()->members = std::move(members);
  entry.EditExtras()->number = [number](int64_t n) { *number = n; };
  entry.done = [&call](const Status& s) { call.promise.set_value(s); };
  rank->engine()->Submit(std::move(entry));
  return call.Wait();
}

// The rank that joined last.
inline Status Join(Rank* rank, int64_t* last) { return AgreeOn(rank, Collective::kJoin, {}, last); }

// The new set's number.
inline int32_t Added(Rank* rank, std::vector<int64_t> members) {
  int64_t number = -1;
  EXPECT_OK(AgreeOn(rank, Collective::kAddProcessSet, std::move(members), &number));
  return static_cast<int32_t>(number);
}

inline void Remove(Rank* rank, std::vector<int64_t> members) {
  int64_t number = -1;
  EXPECT_OK(AgreeOn(rank, Collective::kRemoveProcessSet, std::move(members), &number));
}

inline bool AllEqual(const std::vector<float>& v, float x) {
  return std::all_of(v.begin(), v.end(), [x](float y) { return y == x; });
}

inline float SumOfRanks(int size) { return static_cast<float>(size * (size - 1)) / 2.0f; }

}  // namespace tfhvd
