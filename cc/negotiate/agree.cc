#include "cc/negotiate/agree.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

namespace tfhvd {
namespace {

using Requests = std::vector<const Request*>;
using Text = std::function<std::string(const Request&)>;

constexpr size_t kMostNamed = 8;  // names of tensors that a rank lacks

// Returns "rank 0: float32; ranks [1, 2]: int32", with one group for equal requests.
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

// Returns the shortest text that distinguishes a factor from another.
std::string FactorText(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", factor);
  if (std::strtod(text, nullptr) != factor) std::snprintf(text, sizeof text, "%.17g", factor);
  return text;
}

std::string ReductionText(const Reduction& r) {
  std::string s = ReduceOpName(r.op);
  if (r.prescale != 1.0) s += ", prescale_factor=" + FactorText(r.prescale);
  if (r.postscale != 1.0) s += ", postscale_factor=" + FactorText(r.postscale);
  return s;
}

bool FirstDimMayDiffer(Collective kind) {
  return kind == Collective::kAllGather || kind == Collective::kAllToAll;
}

// Returns whether the collective joins or cuts tensors along the first dimension.
bool NeedsFirstDim(Collective kind) {
  return FirstDimMayDiffer(kind) || kind == Collective::kReduceScatter;
}

// Compares shapes as far as the collective needs them to be equal.
bool ShapesMatch(const Shape& a, const Shape& b, Collective kind) {
  if (!FirstDimMayDiffer(kind) || a.empty() || b.empty()) return a == b;
  return a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

bool IsWeighted(const Request& q) { return q.weight != kUnweighted; }

// A property that differs between ranks: its name, how to show it, and what to do about it.
struct Difference {
  const char* what = nullptr;  // null: nothing differs
  Text text;
  std::string fix;
};

// Returns whether some request differs from the first one.
template <typename Same>
bool AnyDiffers(const Requests& requests, const Same& same) {
  return std::any_of(requests.begin() + 1, requests.end(),
                     [&](const Request* q) { return q != requests[0] && !same(*requests[0], *q); });
}

// Returns "no a, no b": the labels in `all` that this rank's group lacks.
std::string LackingText(const Request& q, const std::set<std::string>& all) {
  const std::set<std::string> own(q.labels.begin(), q.labels.end());
  std::vector<std::string> lacking;
  std::set_difference(all.begin(), all.end(), own.begin(), own.end(), std::back_inserter(lacking));
  std::string text;
  for (size_t i = 0; i < std::min(lacking.size(), kMostNamed); ++i) {
    text += (i > 0 ? ", no " : "no ") + lacking[i];
  }
  if (lacking.size() <= kMostNamed) return text.empty() ? "all of them" : text;
  return text + ", and " + std::to_string(lacking.size() - kMostNamed) + " more are missing";
}

// Returns a difference if the groups hold different tensors, as far as ranks know their names:
// tensors of one shape could take each other's place.
Difference DifferingLabels(const Requests& requests) {
  std::set<std::string> all;
  for (const Request* q : requests) {
    if (q->labels.empty()) return {};
    all.insert(q->labels.begin(), q->labels.end());
  }
  if (!AnyDiffers(requests, [](auto& a, auto& b) { return a.labels == b.labels; })) return {};
  const bool lacks = std::any_of(requests.begin(), requests.end(), [&all](const Request* q) {
    return q->labels.size() < all.size();
  });
  if (!lacks) {
    return {
        "orders of the group",
        [](const Request& q) { return "first " + q.labels.front() + ", last " + q.labels.back(); },
        "Pass the variables in one order on every rank."};
  }
  return {
      "tensors in the group", [all](const Request& q) { return LackingText(q, all); },
      "Compute the same loss on every rank, with a part that does not count multiplied by 0.0; "
      "or pass unconnected_gradients=tf.UnconnectedGradients.ZERO if a variable has no gradient "
      "on some ranks."};
}

// Returns the first tensor of the group at which the ranks differ. REQUIRES: equally many tensors
// on all ranks.
Difference DifferingTensor(const Requests& requests) {
  const Request& first = *requests[0];
  for (size_t t = 0; t < first.tensors.size(); ++t) {
    const bool one = first.tensors.size() == 1;
    const Text text = [t, one](const Request& q) {
      const std::string spec = TensorText(q.tensors[t]);
      if (one) return spec;
      const std::string label = t < q.labels.size() ? " (" + q.labels[t] + ")" : "";
      return "tensor " + std::to_string(t) + " of the group" + label + ", " + spec;
    };
    if (AnyDiffers(requests, [t](const Request& a, const Request& b) {
          return a.tensors[t].dtype == b.tensors[t].dtype;
        })) {
      return {"types", text, "Cast the tensor to one type on every rank."};
    }
    if (!AnyDiffers(requests, [t](const Request& a, const Request& b) {
          return ShapesMatch(a.tensors[t].shape, b.tensors[t].shape, a.kind);
        })) {
      continue;
    }
    if (FirstDimMayDiffer(first.kind)) {
      return {"shapes", text,
              std::string("The tensors of an ") + CollectiveName(first.kind) +
                  " have at least one dimension and may differ in the first one only."};
    }
    return {"shapes", text,
            "Give the tensor one shape on every rank; for parts of different lengths use "
            "allgather."};
  }
  return {};
}

// Hints at sparse gradients, whose rows are gathered.
std::string HintAtSlices(const Requests& requests) {
  const auto any = [&requests](Collective kind) {
    return std::any_of(requests.begin(), requests.end(),
                       [kind](const Request* q) { return q->kind == kind; });
  };
  if (!any(Collective::kAllReduce) || !any(Collective::kAllGather)) return "";
  return " If it is a gradient that is sparse on some ranks, or compiled with XLA on some: pass "
         "sparse_as_dense=True.";
}

// Returns the first property at which any two ranks differ. Properties come in such an order that
// each makes sense if those before it are equal.
Difference FindDifference(const Requests& requests) {
  if (AnyDiffers(requests, [](auto& a, auto& b) { return a.kind == b.kind; })) {
    return {"operations", [](const Request& q) { return std::string(CollectiveName(q.kind)); },
            "Give each collective a name of its own (name=...), and the same name on every rank." +
                HintAtSlices(requests)};
  }
  if (AnyDiffers(requests, [](auto& a, auto& b) { return a.device == b.device; })) {
    return {"devices", [](const Request& q) { return std::string(DeviceKindName(q.device)); },
            "Place the tensor on the same kind of device on every rank (tf.device)."};
  }
  Difference labels = DifferingLabels(requests);
  if (labels.what != nullptr) return labels;
  if (AnyDiffers(requests, [](auto& a, auto& b) { return a.tensors.size() == b.tensors.size(); })) {
    return {"numbers of tensors in the group",
            [](const Request& q) { return std::to_string(q.tensors.size()); },
            "Call the grouped operation with the same tensors on every rank."};
  }
  Difference tensor = DifferingTensor(requests);
  if (tensor.what != nullptr) return tensor;
  if (AnyDiffers(requests, [](auto& a, auto& b) { return a.reduction == b.reduction; })) {
    return {"reductions", [](const Request& q) { return ReductionText(q.reduction); },
            "Pass the same op, prescale_factor and postscale_factor on every rank."};
  }
  if (AnyDiffers(requests, [](auto& a, auto& b) { return IsWeighted(a) == IsWeighted(b); })) {
    return {"weights",
            [](const Request& q) { return IsWeighted(q) ? std::to_string(q.weight) : "none"; },
            "Give the average a weight on every rank, or on none."};
  }
  if (AnyDiffers(requests, [](auto& a, auto& b) { return a.root == b.root; })) {
    return {"root ranks", [](const Request& q) { return std::to_string(q.root); },
            "Pass the same root_rank on every rank."};
  }
  if (AnyDiffers(requests, [](auto& a, auto& b) { return a.members == b.members; })) {
    return {"ranks", [](const Request& q) { return ShapeString(q.members); },
            "Make the same process sets in the same order on every rank of the job, also on ranks "
            "that are not in them."};
  }
  return {};
}

// Returns the first fault that a rank found in its own call, and which ranks found the same.
Status Faults(const Requests& requests, const std::vector<int>& ranks) {
  Status first;
  std::vector<int> also;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i]->fault.ok()) continue;
    if (first.ok()) {
      first = requests[i]->fault;
    } else {
      also.push_back(ranks[i]);
    }
  }
  if (also.empty()) return first;
  return {first.code(), first.message() + " Ranks " + RankList(also) + " have such an error, too."};
}

bool Contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool HasTensors(Collective kind) {
  return kind != Collective::kBarrier && kind != Collective::kJoin &&
         kind != Collective::kAddProcessSet && kind != Collective::kRemoveProcessSet;
}

// Returns the error of a single request.
Status CheckAlone(const Request& q, const std::vector<int>& members) {
  if (q.kind == Collective::kBroadcast && !Contains(members, q.root)) {
    return Status::InvalidArgument(
        Describe(q) + " has a root that does not take part. Received: root_rank=" +
        std::to_string(q.root) + ". Expected: one of the ranks " + RankList(members) + ".");
  }
  if (q.tensors.empty() && HasTensors(q.kind)) {
    return Status::InvalidArgument(Describe(q) + " got no tensors. Expected: at least one tensor.");
  }
  for (const TensorSpec& t : q.tensors) {
    if (NeedsFirstDim(q.kind) && t.shape.empty()) {
      return Status::InvalidArgument(Describe(q) +
                                     " got a scalar. Expected: at least one dimension, along which "
                                     "the ranks' tensors are joined or cut; use "
                                     "tf.reshape(x, [1]).");
    }
    if (q.kind == Collective::kAllReduce || q.kind == Collective::kReduceScatter) {
      const Status s = CheckReduction(t.dtype, q.reduction);
      if (!s.ok()) return Status::InvalidArgument(Describe(q) + ": " + s.message());
    }
    const bool average = q.kind == Collective::kAllReduce && q.reduction.op == ReduceOp::kAverage;
    if (IsWeighted(q) && (!average || !IsFloat(PartType(t.dtype)) || q.weight < 0)) {
      return Status::InvalidArgument(
          Describe(q) + " has a weight. Received: " + std::to_string(q.weight) + ", " +
          ReductionText(q.reduction) + ", " + DTypeName(t.dtype) +
          ". Expected: a weight of 0 or above, Average, and a floating-point or complex type.");
    }
    if (q.kind == Collective::kAdasum && !IsFloat(t.dtype)) {
      return Status::InvalidArgument(
          Describe(q) + " divides by the length of a gradient. Received: " + DTypeName(t.dtype) +
          ". Expected: float16, bfloat16, float32 or float64.");
    }
  }
  return Status::Ok();
}

// Returns each member's weight, 0 if it is absent; empty if all weights are equal and no member is
// absent.
std::vector<int64_t> WeightsOf(const Requests& requests, const std::vector<int>& ranks,
                               const std::vector<int>& members) {
  std::vector<int64_t> weights;
  if (!IsWeighted(*requests[0])) return weights;
  size_t next = 0;
  for (int member : members) {
    const bool asked = next < ranks.size() && ranks[next] == member;
    weights.push_back(asked ? requests[next++]->weight : 0);
  }
  const bool same = std::all_of(weights.begin(), weights.end(),
                                [&](int64_t w) { return w == weights[0] && w > 0; });
  if (same) weights.clear();
  return weights;
}

// Returns whether all ranks stop. An absent rank could not stop with the others.
bool RequestsStop(const Requests& requests, const std::vector<int>& absent) {
  return absent.empty() && requests[0]->kind != Collective::kJoin &&
         std::any_of(requests.begin(), requests.end(), [](const Request* q) { return q->stops; });
}

// Checks that the total number of rows, `dims` by member, can be counted; also if a tensor has no
// elements, because each dimension is multiplied with those before it.
Status CheckSize(const Request& q, const TensorSpec& tensor, const std::vector<int64_t>& dims,
                 const std::vector<int>& members) {
  int64_t product = 0;
  bool fits = true;
  for (int64_t n : dims)
    fits = fits && !__builtin_add_overflow(product, std::max<int64_t>(n, 0), &product);
  for (size_t d = 1; d < tensor.shape.size(); ++d) {
    fits = fits && !__builtin_mul_overflow(product, tensor.shape[d], &product);
  }
  if (fits && !__builtin_mul_overflow(product, ItemSize(tensor.dtype), &product))
    return Status::Ok();
  return Status::InvalidArgument(
      Describe(q) + " would move more than a tensor can hold. Received: first dimensions " +
      ShapeString(dims) + " from ranks " + RankList(members) + ", and " +
      ShapeString(Shape(tensor.shape.begin() + 1, tensor.shape.end())) +
      " as the others. Expected: less than 2^63 rows, elements and bytes in all.");
}

// Returns the error of a collective that is impossible without the ranks that have joined.
Status CheckAbsent(const Request& q, const std::vector<int>& absent) {
  if (absent.empty()) return Status::Ok();
  const std::string where = Describe(q) + " is not possible while ranks " + RankList(absent) +
                            " have joined because their data have ended. Received: ";
  if (q.kind == Collective::kReduceScatter || q.kind == Collective::kAllToAll) {
    return Status::InvalidArgument(where + CollectiveName(q.kind) +
                                   ". Expected: allreduce, allgather, broadcast or barrier.");
  }
  if (q.kind == Collective::kBroadcast && Contains(absent, q.root)) {
    return Status::InvalidArgument(where + "root_rank=" + std::to_string(q.root) +
                                   ". Expected: a root that has not joined.");
  }
  const bool sums = q.reduction.op == ReduceOp::kSum || q.reduction.op == ReduceOp::kAverage;
  // No value, multiplied by any factor, would leave the others' result unchanged.
  if (q.kind == Collective::kAllReduce && !sums && q.reduction.prescale != 1.0) {
    return Status::InvalidArgument(where + ReductionText(q.reduction) +
                                   ". Expected: no prescale_factor, or Sum or Average.");
  }
  return Status::Ok();
}

}  // namespace

std::string Describe(const Request& request) {
  return std::string(CollectiveName(request.kind)) + " '" + request.key.name + "'";
}

Decision Agree(const std::vector<const Request*>& requests, const std::vector<int>& ranks,
               const std::vector<int>& absent) {
  const Request& first = *requests[0];
  Decision decision;
  decision.key = first.key;
  const auto lacks_root = [](const Request* q) {
    return q->kind == Collective::kBroadcast && q->root == kLostRoot;
  };
  if (std::any_of(requests.begin(), requests.end(), lacks_root)) {
    decision.verdict = RootIsLost(first);
    return decision;
  }
  const Difference d = FindDifference(requests);
  if (d.what != nullptr) {
    const bool one_kind = !AnyDiffers(requests, [](auto& a, auto& b) { return a.kind == b.kind; });
    const std::string name = one_kind ? Describe(first) : "the collective '" + first.key.name + "'";
    decision.verdict =
        Status::InvalidArgument("Mismatched " + std::string(d.what) + " in " + name +
                                ". Received: " + WhoSentWhat(requests, ranks, d.text) +
                                ". Expected: the same on every rank. " + d.fix);
    return decision;
  }
  decision.verdict = Faults(requests, ranks);
  if (!decision.verdict.ok()) return decision;
  std::vector<int> members;
  std::merge(ranks.begin(), ranks.end(), absent.begin(), absent.end(), std::back_inserter(members));
  decision.verdict = CheckAlone(first, members);
  if (decision.verdict.ok()) decision.verdict = CheckAbsent(first, absent);
  if (!decision.verdict.ok()) return decision;
  decision.weights = WeightsOf(requests, ranks, members);
  decision.stop_requested = RequestsStop(requests, absent);
  if (!FirstDimMayDiffer(first.kind)) return decision;
  for (size_t t = 0; t < first.tensors.size(); ++t) {
    std::vector<int64_t> dims;
    size_t next = 0;
    for (int member : members) {
      const bool asked = next < ranks.size() && ranks[next] == member;
      dims.push_back(asked ? requests[next++]->tensors[t].shape[0] : kJoined);
    }
    decision.verdict = CheckSize(first, first.tensors[t], dims, members);
    if (!decision.verdict.ok()) return decision;
    decision.first_dims.push_back(std::move(dims));
  }
  return decision;
}

}  // namespace tfhvd
