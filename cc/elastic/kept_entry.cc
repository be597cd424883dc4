#include "cc/elastic/kept_entry.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

namespace tfhvd {
namespace {

// Whether all ranks have the same result.
bool IsAlike(Collective kind) {
  return kind != Collective::kAllToAll && kind != Collective::kReduceScatter;
}

}  // namespace

KeptEntry::KeptEntry(Entry&& submitted) : entry(std::move(submitted)) {
  if (!survives()) return;
  inputs_.resize(entry.inputs.size());
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    if (entry.inputs[i] == nullptr || entry.inputs[i] != entry.outputs[i]) continue;
    const TensorSpec& tensor = request().tensors[i];
    const char* const from = static_cast<const char*>(entry.inputs[i]);
    inputs_[i].assign(from, from + NumElements(tensor.shape) * ItemSize(tensor.dtype));
    entry.inputs[i] = inputs_[i].data();
  }
}

bool KeptEntry::survives() const {
  return request().key.process_set == 0 && request().device == DeviceKind::kHost;
}

Entry KeptEntry::Give(int to_generation, Callbacks callbacks) {
  generation = to_generation;
  Entry given;
  given.request = entry.request;
  given.anonymous = entry.anonymous;
  given.inputs = entry.inputs;
  given.outputs = entry.outputs;
  if (entry.allocate) {
    shapes.assign(entry.inputs.size(), {});
    outputs.assign(entry.inputs.size(), nullptr);
    given.allocate = std::move(callbacks.allocate);
  }
  const EntryExtras& extras = entry.extras();
  if (extras.stream != nullptr || extras.finished || !extras.splits.empty() ||
      extras.received_splits) {
    given.EditExtras()->stream = extras.stream;
    given.EditExtras()->finished = extras.finished;
    given.EditExtras()->splits = extras.splits;
    given.EditExtras()->received_splits = extras.received_splits;
  }
  if (request().kind == Collective::kAllGather) {
    first_dims.assign(entry.inputs.size(), {});
    given.EditExtras()->gathers = std::move(callbacks.gathers);
  }
  if (extras.number) given.EditExtras()->number = std::move(callbacks.number);
  given.done = std::move(callbacks.done);
  return given;
}

void KeptEntry::TakeBack(const Status& status) {
  generation = -1;
  id = 0;
  withdrawal = nullptr;
  why = status;
  waits_since = std::chrono::steady_clock::now();
}

Ledger::Result KeptEntry::ResultOf() {
  Ledger::Result result;
  Outcome& outcome = result.outcome;
  outcome.copies = IsAlike(request().kind);
  outcome.first_dims = first_dims;
  outcome.number = number;
  for (size_t i = 0; i < request().tensors.size() && outcome.copies; ++i) {
    const TensorSpec& tensor = request().tensors[i];
    const bool late = entry.outputs[i] == nullptr;
    outcome.shapes.push_back(late ? shapes[i] : tensor.shape);
    outcome.bytes.push_back(NumElements(outcome.shapes[i]) * ItemSize(tensor.dtype));
    result.data.push_back(late ? outputs[i] : entry.outputs[i]);
  }
  if (entry.retain) {
    result.memory = entry.retain();
    return result;
  }
  const int64_t bytes = std::accumulate(outcome.bytes.begin(), outcome.bytes.end(), int64_t{0});
  const auto copy = std::make_shared<std::vector<char>>(static_cast<size_t>(bytes));
  char* to = copy->data();
  for (size_t i = 0; i < result.data.size(); ++i) {
    if (outcome.bytes[i] == 0) continue;
    std::memcpy(to, result.data[i], static_cast<size_t>(outcome.bytes[i]));
    result.data[i] = to;
    to += outcome.bytes[i];
  }
  result.memory = copy;
  return result;
}

Status KeptEntry::TakeCopy(const Outcome& outcome, const char* data) {
  if (!outcome.copies) {
    return Status::Aborted("'" + outcome.turn.name +
                           "' was done on some ranks before one was lost, and its result differs "
                           "from rank to rank");
  }
  shapes = outcome.shapes;
  first_dims = outcome.first_dims;
  number = outcome.number;
  outputs.assign(outcome.bytes.size(), nullptr);
  for (size_t i = 0; i < outcome.bytes.size(); ++i) {
    outputs[i] = entry.outputs[i];
    if (outputs[i] == nullptr) {
      const bool gathers = entry.extras().gathers && i < first_dims.size();
      if (gathers) entry.extras().gathers(static_cast<int>(i), first_dims[i]);
      TFHVD_RETURN_IF_ERROR(entry.allocate(static_cast<int>(i), shapes[i], &outputs[i]));
    }
    const auto bytes = static_cast<size_t>(outcome.bytes[i]);
    if (bytes > 0) std::memcpy(outputs[i], data, bytes);
    data += bytes;
  }
  if (entry.extras().number) entry.extras().number(number);
  return Status::Ok();
}

void KeptEntry::RenumberRoot(const Roster& before, const Roster& roster) {
  if (request().kind != Collective::kBroadcast || why.ok()) return;
  Request renumbered = request();
  const auto root = static_cast<size_t>(renumbered.root);
  const std::vector<int>& left = roster.members;
  const auto found = root < before.members.size()
                         ? std::find(left.begin(), left.end(), before.members[root])
                         : left.end();
  root_is_lost = found == left.end();
  if (root_is_lost) {
    why =
        Status::Aborted("broadcast '" + renumbered.key.name +
                        "' cannot be completed: its root is lost, and no other rank has the data");
    return;
  }
  renumbered.root = static_cast<int32_t>(found - left.begin());
  entry.request = SharedRequest(std::move(renumbered));
}

}  // namespace tfhvd
