#include "cc/elastic/retained_entry.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>

namespace tfhvd {
namespace {

// Copies the present outputs into memory of the result.
void KeepCopy(Ledger::Result* result) {
  const std::vector<int64_t> sizes = result->record().bytes;
  const auto bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const auto copy = std::make_shared<std::vector<char>>(static_cast<size_t>(bytes));
  result->CopyTo(copy->data());
  const char* at = copy->data();
  for (size_t i = 0; i < sizes.size(); ++i) {
    result->data[i] = at;
    at += sizes[i];
  }
  result->memory = copy;
}

bool Survives(const Request& request) {
  return request.key.process_set == 0 && request.device == DeviceKind::kHost &&
         request.kind != Collective::kRemoveProcessSet;  // no set is left to remove
}

}  // namespace

RetainedEntry::Pointer RetainedEntry::Make(Entry&& submitted, BlockCache* blocks) {
  static_assert(alignof(RetainedEntry) <= BlockCache::kAlignment, "blocks are aligned to that");
  void* const block = blocks->Take(sizeof(RetainedEntry));
  if (block == nullptr) throw std::bad_alloc();  // as operator new does
  return Pointer(new (block) RetainedEntry(std::move(submitted)), GiveBack{blocks});
}

void RetainedEntry::GiveBack::operator()(RetainedEntry* kept) const {
  kept->~RetainedEntry();
  blocks->Give(kept, sizeof(RetainedEntry));
}

RetainedEntry::RetainedEntry(Entry&& submitted)
    : entry(std::move(submitted)), survives_(Survives(*entry.request)) {
  if (!survives_) return;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    if (entry.inputs[i] == nullptr || entry.inputs[i] != entry.outputs[i]) continue;
    inputs_.resize(entry.inputs.size());
    const TensorSpec& tensor = request().tensors[i];
    const char* const from = static_cast<const char*>(entry.inputs[i]);
    inputs_[i].assign(from, from + NumElements(tensor.shape) * ItemSize(tensor.dtype));
    entry.inputs[i] = inputs_[i].data();
  }
}

Entry RetainedEntry::Give(int to_generation, Callbacks callbacks) {
  generation = to_generation;
  Entry given;
  given.withdrawal = &withdrawal.emplace();
  given.request = entry.request;
  given.anonymous = entry.anonymous;
  given.inputs = entry.inputs;
  given.outputs = entry.outputs;
  const EntryExtras& extras = entry.extras();
  const bool gathers = request().kind == Collective::kAllGather;
  if (entry.allocate || gathers || extras.number) found = std::make_unique<FoundTogether>();
  if (entry.allocate) {
    for (const TensorSpec& tensor : request().tensors) found->shapes.push_back(tensor.shape);
    found->outputs.assign(entry.inputs.size(), nullptr);
    given.allocate = std::move(callbacks.allocate);
  }
  if (extras.stream != nullptr || extras.finished || !extras.splits.empty() ||
      extras.received_splits) {
    given.EditExtras()->stream = extras.stream;
    given.EditExtras()->finished = extras.finished;
    given.EditExtras()->backward_pass = extras.backward_pass;
    given.EditExtras()->buckets = extras.buckets;
    given.EditExtras()->splits = extras.splits;
    given.EditExtras()->received_splits = extras.received_splits;
  }
  if (gathers) {
    found->first_dims.assign(entry.inputs.size(), {});
    given.EditExtras()->gathers = std::move(callbacks.gathers);
  }
  if (extras.number) given.EditExtras()->number = std::move(callbacks.number);
  given.done = std::move(callbacks.done);
  return given;
}

void RetainedEntry::TakeBack(const Status& status) {
  generation = -1;
  why = status;
  waits_since = std::chrono::steady_clock::now();
}

Ledger::Result RetainedEntry::ResultOf() {
  Ledger::Result result;
  result.request = entry.request;
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    const bool late = entry.outputs[i] == nullptr && found != nullptr && !found->outputs.empty();
    result.data.push_back(late ? found->outputs[i] : entry.outputs[i]);
  }
  result.found = std::move(found);
  if (!result.copies()) return result;  // its data are never read
  if (entry.retain) {
    result.memory = entry.retain(Retained::kOutputs);
  } else {
    KeepCopy(&result);
  }
  return result;
}

Ledger::Result RetainedEntry::ResultOf(const Status& failure) {
  Ledger::Result result;
  result.request = entry.request;
  result.failure = failure;
  return result;
}

Status RetainedEntry::ApplyCopy(const ResultRecord& record, const char* data) {
  if (!record.failure.ok()) return Status(record.failure).ByAgreement();
  if (!record.copies) {
    return Status::DataLoss("'" + record.seq.name +
                            "' was done on some ranks before one was lost, and its result differs "
                            "from rank to rank")
        .ByAgreement();
  }
  found = std::make_unique<FoundTogether>();
  found->shapes = record.shapes;
  found->first_dims = record.first_dims;
  found->number = record.number;
  for (size_t i = 0; i < record.bytes.size(); ++i) {
    void* output = entry.outputs[i];
    if (output == nullptr) {
      const bool gathers = entry.extras().gathers && i < record.first_dims.size();
      if (gathers) entry.extras().gathers(static_cast<int>(i), record.first_dims[i]);
      TFHVD_RETURN_IF_ERROR(entry.allocate(static_cast<int>(i), record.shapes[i], &output));
    }
    found->outputs.push_back(output);
    const auto bytes = static_cast<size_t>(record.bytes[i]);
    if (bytes > 0) std::memcpy(output, data, bytes);
    data += bytes;
  }
  if (entry.extras().number) entry.extras().number(record.number);
  return Status::Ok();
}

void RetainedEntry::RenumberRoot(const Roster& before, const Roster& roster) {
  if (request().kind != Collective::kBroadcast || why.ok()) return;
  Request renumbered = request();
  const auto root = static_cast<size_t>(renumbered.root);
  const std::vector<int>& left = roster.members;
  const auto found = root < before.members.size()
                         ? std::find(left.begin(), left.end(), before.members[root])
                         : left.end();
  const bool lost = found == left.end();
  renumbered.root = lost ? kLostRoot : static_cast<int32_t>(found - left.begin());
  entry.request = SharedRequest(std::move(renumbered));
}

}  // namespace tfhvd
