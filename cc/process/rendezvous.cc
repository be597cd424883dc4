#include "cc/process/rendezvous.h"

#include <atomic>
#include <utility>

#include "cc/process/process.h"

namespace tfhvd {

// The entry shares this state, because the engine may write into it after the rendezvous is gone.
struct Rendezvous::State {
  const int64_t here = 1;
  int64_t there = 0;
  std::atomic<bool> complete{false};
};

Rendezvous::Rendezvous() : state_(std::make_shared<State>()) {
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return;
  engine_ = engine;
  Entry entry;
  Request* request = entry.request.Edit();
  request->key.name = "tfhvd.rendezvous";
  request->kind = Collective::kAllReduce;  // Ranks that have joined contribute 0.
  request->reduction.op = ReduceOp::kSum;
  request->tensors = {{DType::kInt64, {}}};
  entry.anonymous = true;
  entry.apart = true;
  entry.inputs = {&state_->here};
  entry.outputs = {&state_->there};
  entry.done = [state = state_, size = engine->topology().size](const Status& status) {
    state->complete = status.ok() && state->there == size;
  };
  entry_ = engine->Submit(std::move(entry));
}

Rendezvous::~Rendezvous() {
  if (const std::shared_ptr<Engine> engine = engine_.lock()) engine->Cancel(entry_);
}

bool Rendezvous::IsComplete() const { return state_->complete; }

}  // namespace tfhvd
