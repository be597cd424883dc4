// Request: what one rank says of one collective that it wants. Plain data; travels in
// Announcements.
//
// A request holds one tensor, or the several tensors of a group, which are agreed and fail as one.
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

// Bytes of one step along the first dimension.
inline int64_t RowBytes(const TensorSpec& spec) {
  int64_t bytes = ItemSize(spec.dtype);
  for (size_t d = 1; d < spec.shape.size(); ++d) bytes *= spec.shape[d];
  return bytes;
}

// How many of `rows` rows part `part` of `parts` gets: the first ones get one more where the rows
// do not come out even.
inline int64_t RowsOfPart(int64_t rows, int parts, int part) {
  return rows / parts + (part < rows % parts ? 1 : 0);
}

// The root of a broadcast that a rank has asked for before that root was lost (cc/elastic). Who
// asks later names one that is there.
constexpr int32_t kLostRoot = std::numeric_limits<int32_t>::min();

// The weight of a rank in an average of all alike.
constexpr int64_t kUnweighted = -1;

struct Request {
  Key key;
  Collective kind = Collective::kAllReduce;
  DeviceKind device = DeviceKind::kHost;
  Reduction reduction;              // allreduce, reducescatter
  int32_t root = 0;                 // broadcast: a rank of the job, in the process set
  std::vector<TensorSpec> tensors;  // none for a barrier
  std::vector<int64_t> members;     // add_process_set, remove_process_set: its ranks, ascending
  // What this rank found wrong with its own call, or lacks for it, and the others cannot see: the
  // collective fails with this on every rank. Ok where nothing is.
  Status fault;
  // An allreduce by Average: how much this rank counts in it, 0 or above, by its samples for
  // instance. A rank that has joined counts 0. Changes from step to step, and differs between
  // ranks.
  int64_t weight = kUnweighted;
  // All are asked to stop: by a join where they can, else after the step that this one is part of.
  bool stops = false;
  // What its tensors are called, each; empty: not known. Ranks that know it must have the same, so
  // that no two tensors of a shape take each other's place in a group.
  std::vector<std::string> labels;
  // The line of this rank's program that asked for it, for messages to people; "": not known. Not
  // sent, and no part of what the ranks must have in common.
  std::string origin;

  bool operator==(const Request& o) const {
    return key == o.key && kind == o.kind && device == o.device && reduction == o.reduction &&
           root == o.root && tensors == o.tensors && members == o.members && fault == o.fault &&
           weight == o.weight && stops == o.stops && labels == o.labels;
  }
};

// Of all its tensors, as this rank brings them.
inline int64_t BytesOf(const Request& request) {
  int64_t bytes = 0;
  for (const TensorSpec& t : request.tensors) bytes += NumElements(t.shape) * ItemSize(t.dtype);
  return bytes;
}

// Why a broadcast whose root is kLostRoot on some rank fails on all.
inline Status RootIsLost(const Request& request) {
  return Status::DataLoss("broadcast '" + request.key.name +
                          "' cannot be completed: its root is lost, and no other rank has the "
                          "data");
}

// A request that many may hold, so that what repeats is neither copied nor compared again: all
// executions of a kernel with the same shapes, and what remembers them. Any thread, each with a
// SharedRequest of its own.
class SharedRequest {
 public:
  SharedRequest() = default;  // holds none
  SharedRequest(Request request) : held_(std::make_shared<Request>(std::move(request))) {}

  const Request* get() const { return held_.get(); }
  // REQUIRES: it holds one.
  const Request& operator*() const { return *held_; }
  const Request* operator->() const { return held_.get(); }

  // Which request it is, for who does not keep it: none that is made later passes for it.
  std::weak_ptr<const Request> identity() const { return held_; }
  bool Is(const std::weak_ptr<const Request>& identity) const {
    return !held_.owner_before(identity) && !identity.owner_before(held_);
  }

  // To fill in, by the thread that makes it and before others hold it: an empty one if there is
  // none yet.
  Request* Edit() {
    if (held_ == nullptr) held_ = std::make_shared<Request>();
    return held_.get();
  }

 private:
  std::shared_ptr<Request> held_;
};

}  // namespace tfhvd
