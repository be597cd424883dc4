#include "cc/negotiate/agree.h"

#include <functional>
#include <utility>

namespace tfhvd {
namespace {

using Requests = std::vector<const Request*>;
using Text = std::function<std::string(const Request&)>;

// "rank 0: float32; ranks [1, 2]: int32", ranks that agree together.
std::string WhoSentWhat(const Requests& requests, const std::vector<int>& ranks, const Text& text) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string value = text(*requests[i]);
    auto group = groups.begin();
    while (group != groups.end() && group->first != value) ++group;
    if (group == groups.end()) group = groups.insert(group, {value, {}});
    group->second.push_back(ranks[i]);
  }
  std::string out;
  for (const auto& [value, members] : groups) {
    if (!out.empty()) out += "; ";
    out +=
        members.size() == 1 ? "rank " + std::to_string(members[0]) : "ranks " + RankList(members);
    out += ": " + value;
  }
  return out;
}

std::string TensorText(const TensorSpec& t) { return DTypeName(t.dtype) + ShapeString(t.shape); }

std::string ReductionText(const Reduction& r) {
  std::string s = ReduceOpName(r.op);
  if (r.prescale != 1.0) s += ", prescale_factor=" + std::to_string(r.prescale);
  if (r.postscale != 1.0) s += ", postscale_factor=" + std::to_string(r.postscale);
  return s;
}

bool FirstDimMayDiffer(Collective kind) { return kind == Collective::kAllGather; }

// Shapes compared as the collective needs it.
bool ShapesMatch(const Shape& a, const Shape& b, Collective kind) {
  if (!FirstDimMayDiffer(kind)) return a == b;
  return a.size() == b.size() && !a.empty() &&
         Shape(a.begin() + 1, a.end()) == Shape(b.begin() + 1, b.end());
}

// Where one property differs between ranks: what it is, how to show it, and what to do about it.
struct Difference {
  const char* what = nullptr;
  Text text;
  std::string fix;
};

// The first tensor of the group at which a and b differ.
bool DifferingTensor(const Request& a, const Request& b, Difference* d) {
  for (size_t t = 0; t < a.tensors.size(); ++t) {
    const bool dtype = a.tensors[t].dtype != b.tensors[t].dtype;
    if (!dtype && ShapesMatch(a.tensors[t].shape, b.tensors[t].shape, a.kind)) continue;
    d->what = dtype ? "types" : "shapes";
    const std::string which =
        a.tensors.size() > 1 ? "tensor " + std::to_string(t) + " of the group, " : "";
    d->text = [t, which](const Request& q) { return which + TensorText(q.tensors[t]); };
    if (dtype) {
      d->fix = "Cast the tensor to one type on every rank.";
    } else if (FirstDimMayDiffer(a.kind)) {
      d->fix =
          "The tensors of an allgather have at least one dimension and may differ in the first one "
          "only.";
    } else {
      d->fix =
          "Give the tensor one shape on every rank; for parts of different lengths use allgather.";
    }
    return true;
  }
  return false;
}

bool Differ(const Request& a, const Request& b, Difference* d) {
  if (a.kind != b.kind) {
    *d = {"operations", [](const Request& q) { return std::string(CollectiveName(q.kind)); },
          "Give each collective a name of its own (name=...), and the same name on every rank."};
    return true;
  }
  if (a.device != b.device) {
    *d = {"devices", [](const Request& q) { return std::string(DeviceKindName(q.device)); },
          "Place the tensor on the same kind of device on every rank (tf.device)."};
    return true;
  }
  if (a.tensors.size() != b.tensors.size()) {
    *d = {"numbers of tensors in the group",
          [](const Request& q) { return std::to_string(q.tensors.size()); },
          "Call the grouped operation with the same tensors on every rank."};
    return true;
  }
  if (DifferingTensor(a, b, d)) return true;
  if (!(a.reduction == b.reduction)) {
    *d = {"reductions", [](const Request& q) { return ReductionText(q.reduction); },
          "Pass the same op, prescale_factor and postscale_factor on every rank."};
    return true;
  }
  if (a.root != b.root) {
    *d = {"root ranks", [](const Request& q) { return std::to_string(q.root); },
          "Pass the same root_rank on every rank."};
    return true;
  }
  return false;
}

// What is wrong with a request by itself.
Status CheckAlone(const Request& q, int size) {
  if (q.kind == Collective::kBroadcast && (q.root < 0 || q.root >= size)) {
    return Status::InvalidArgument(
        Describe(q) + " has a root that is no rank. Received: root_rank=" + std::to_string(q.root) +
        ". Expected: 0 to " + std::to_string(size - 1) + ".");
  }
  for (const TensorSpec& t : q.tensors) {
    if (FirstDimMayDiffer(q.kind) && t.shape.empty()) {
      return Status::InvalidArgument(
          Describe(q) +
          " got a scalar. Expected: at least one dimension, along "
          "which the ranks' tensors are joined; use tf.reshape(x, [1]).");
    }
    if (q.kind == Collective::kAllReduce || q.kind == Collective::kReduceScatter) {
      const Status s = CheckReduction(t.dtype, q.reduction);
      if (!s.ok()) return Status::InvalidArgument(Describe(q) + ": " + s.message());
    }
  }
  return Status::Ok();
}

}  // namespace

std::string Describe(const Request& request) {
  return std::string(CollectiveName(request.kind)) + " '" + request.key.name + "'";
}

Decision Agree(const std::vector<const Request*>& requests, const std::vector<int>& ranks) {
  const Request& first = *requests[0];
  Decision decision;
  decision.key = first.key;
  for (size_t i = 1; i < requests.size(); ++i) {
    Difference d;
    if (!Differ(first, *requests[i], &d)) continue;
    const std::string name = first.kind == requests[i]->kind
                                 ? Describe(first)
                                 : "the collective '" + first.key.name + "'";
    decision.verdict =
        Status::InvalidArgument("Mismatched " + std::string(d.what) + " in " + name +
                                ". Received: " + WhoSentWhat(requests, ranks, d.text) +
                                ". Expected: the same on every rank. " + d.fix);
    return decision;
  }
  decision.verdict = CheckAlone(first, static_cast<int>(requests.size()));
  if (!decision.verdict.ok() || !FirstDimMayDiffer(first.kind)) return decision;
  for (size_t t = 0; t < first.tensors.size(); ++t) {
    std::vector<int64_t> dims;
    for (const Request* q : requests) dims.push_back(q->tensors[t].shape[0]);
    decision.first_dims.push_back(std::move(dims));
  }
  return decision;
}

}  // namespace tfhvd
