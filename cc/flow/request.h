// Request: one rank's description of a collective that it wants. Plain data; travels in
// Announcements.
//
// A request holds one tensor, or the tensors of a group, which are agreed on and fail together.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

// A collective's identity across ranks.
struct Key {
  int32_t process_set = 0;
  std::string name;

  bool operator==(const Key& o) const { return process_set == o.process_set && name == o.name; }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    return std::hash<std::string>()(key.name) * 31 + static_cast<size_t>(key.process_set);
  }
};

struct TensorSpec {
  DType dtype = DType::kFloat32;
  Shape shape;

  bool operator==(const TensorSpec& o) const { return dtype == o.dtype && shape == o.shape; }
};

// Returns the bytes of one row: one step along the first dimension.
inline int64_t RowBytes(const TensorSpec& spec) {
  int64_t bytes = ItemSize(spec.dtype);
  for (size_t d = 1; d < spec.shape.size(); ++d) bytes *= spec.shape[d];
  return bytes;
}

// Returns how many of `rows` rows part `part` of `parts` gets: if they cannot be divided evenly,
// the first parts get one more.
inline int64_t RowsOfPart(int64_t rows, int parts, int part) {
  return rows / parts + (part < rows % parts ? 1 : 0);
}

// The root of a broadcast whose rank failed after another rank had asked for it (cc/elastic). Later
// requests name a root that is alive.
constexpr int32_t kLostRoot = std::numeric_limits<int32_t>::min();

// The weight of a rank in an unweighted average.
constexpr int64_t kUnweighted = -1;

struct Request {
  Key key;
  Collective kind = Collective::kAllReduce;
  DeviceKind device = DeviceKind::kHost;
  Reduction reduction;              // allreduce, reducescatter
  int32_t root = 0;                 // broadcast: a rank of the job, in the process set
  std::vector<TensorSpec> tensors;  // none for a barrier
  std::vector<int64_t> members;     // add_process_set, remove_process_set: its ranks, ascending
  // An error that this rank found in its own call, or something that it lacks, and that the others
  // cannot see: the collective fails with this on every rank. Ok if there is none.
  Status fault;
  // An allreduce by Average: this rank's weight, 0 or above, for instance its number of samples.
  // The weight of a joined rank is 0. Changes from step to step, and differs between ranks.
  int64_t weight = kUnweighted;
  // Asks all ranks to stop: a join, as soon as they can; any other, after the step that it is part
  // of.
  bool stops = false;
  // The name of each tensor; empty: unknown. Ranks that know names must have the same, so that two
  // tensors of one shape cannot take each other's place in a group.
  std::vector<std::string> labels;
  // The line of this rank's program that asked for the collective, for messages; "": unknown. Not
  // sent, and no part of what the ranks must have in common.
  std::string origin;

  bool operator==(const Request& o) const {
    return key == o.key && kind == o.kind && device == o.device && reduction == o.reduction &&
           root == o.root && tensors == o.tensors && members == o.members && fault == o.fault &&
           weight == o.weight && stops == o.stops && labels == o.labels;
  }
};

// Returns the bytes of all tensors that this rank contributes.
inline int64_t BytesOf(const Request& request) {
  int64_t bytes = 0;
  for (const TensorSpec& t : request.tensors) bytes += NumElements(t.shape) * ItemSize(t.dtype);
  return bytes;
}

// The error, on all ranks, of a broadcast whose root is kLostRoot on some rank.
inline Status RootIsLost(const Request& request) {
  return Status::DataLoss("broadcast '" + request.key.name +
                          "' cannot be completed: its root has failed, and no other rank has the "
                          "data");
}

// A shared request, so that repeated requests are neither copied nor compared again: all executions
// of a kernel with the same shapes hold it, and so does everything that remembers them. Any thread,
// each with another SharedRequest object.
class SharedRequest {
 public:
  SharedRequest() = default;  // holds none
  SharedRequest(Request request) : held_(std::make_shared<Request>(std::move(request))) {}

  const Request* get() const { return held_.get(); }
  // REQUIRES: it is not empty.
  const Request& operator*() const { return *held_; }
  const Request* operator->() const { return held_.get(); }

  // Identifies the request for code that does not keep it: no later request has the same identity.
  std::weak_ptr<const Request> identity() const { return held_; }
  bool Is(const std::weak_ptr<const Request>& identity) const {
    return !held_.owner_before(identity) && !identity.owner_before(held_);
  }

  // Returns the request to fill it in, and makes an empty one if there is none. Only for the thread
  // that makes it, before others hold it.
  Request* Edit() {
    if (held_ == nullptr) held_ = std::make_shared<Request>();
    return held_.get();
  }

 private:
  std::shared_ptr<Request> held_;
};

}  // namespace tfhvd
