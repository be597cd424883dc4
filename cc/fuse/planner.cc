#include "cc/fuse/planner.h"

#include <numeric>

namespace tfhvd {
namespace {

bool IsFusible(Collective kind) {
  return kind == Collective::kAllReduce || kind == Collective::kBroadcast ||
         kind == Collective::kAllGather || kind == Collective::kReduceScatter;
}

bool SameCall(const Plan& plan, const Agreed& agreed, DType dtype) {
  const Request& request = *agreed.entry.request;
  if (plan.process_set != request.key.process_set || plan.kind != request.kind ||
      plan.device != request.device) {
    return false;
  }
  switch (request.kind) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return plan.dtype == dtype && plan.reduction == request.reduction &&
             plan.weights == agreed.decision.weights;
    case Collective::kBroadcast:
      return plan.root == request.root;
    default:
      return true;
  }
}

Plan NewPlan(const Agreed& agreed, DType dtype) {
  const Request& request = *agreed.entry.request;
  Plan plan;
  plan.process_set = request.key.process_set;
  plan.kind = request.kind;
  plan.device = request.device;
  plan.dtype = dtype;
  plan.reduction = request.reduction;
  plan.weights = agreed.decision.weights;
  plan.root = request.root;
  return plan;
}

// Makes plans one piece after the other. Plans stay open for more pieces until one does not fit.
class Builder {
 public:
  explicit Builder(const FusionLimits& limits) : limits_(limits) {}

  void Add(const Agreed& agreed, DType dtype, const Piece& piece) {
    const Request& request = *agreed.entry.request;
    const bool alone = !IsFusible(request.kind) ||
                       piece.bytes >= AloneFrom(limits_, request.device) ||
                       piece.bytes > limits_.threshold;
    Plan* plan = alone ? nullptr : OpenPlan(agreed, dtype, piece.bytes);
    if (plan == nullptr) {
      if (!alone) open_.push_back(plans_.size());
      plans_.push_back(NewPlan(agreed, dtype));
      plan = &plans_.back();
    }
    plan->pieces.push_back(piece);
    plan->bytes += piece.bytes;
  }

  std::vector<Plan> Take() { return std::move(plans_); }

 private:
  Plan* OpenPlan(const Agreed& agreed, DType dtype, int64_t bytes) {
    for (size_t i = 0; i < open_.size(); ++i) {
      Plan& plan = plans_[open_[i]];
      if (!SameCall(plan, agreed, dtype)) continue;
      if (plan.bytes + bytes <= limits_.threshold) return &plan;
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      return nullptr;
    }
    return nullptr;
  }

  const FusionLimits& limits_;
  std::vector<Plan> plans_;
  std::vector<size_t> open_;  // indices of plans that take more, at most one a kind of call
};

}  // namespace

int64_t TotalBytes(const Agreed& agreed, int tensor) {
  const TensorSpec& spec = agreed.entry.request->tensors[tensor];
  if (agreed.decision.first_dims.empty()) return NumElements(spec.shape) * ItemSize(spec.dtype);
  const std::vector<int64_t> rows = agreed.decision.RowsOfRanks(static_cast<size_t>(tensor));
  return std::accumulate(rows.begin(), rows.end(), int64_t{0}) * RowBytes(spec);
}

std::vector<Plan> MakePlans(const std::vector<Agreed>& agreed, const FusionLimits& limits) {
  Builder builder(limits);
  for (size_t i = 0; i < agreed.size(); ++i) {
    const Request& request = *agreed[i].entry.request;
    if (request.tensors.empty()) {  // a barrier
      builder.Add(agreed[i], DType::kUInt8, {static_cast<int>(i), 0, 0});
    }
    for (size_t t = 0; t < request.tensors.size(); ++t) {
      const int tensor = static_cast<int>(t);
      builder.Add(agreed[i], PartType(request.tensors[t].dtype),
                  {static_cast<int>(i), tensor, TotalBytes(agreed[i], tensor)});
    }
  }
  return builder.Take();
}

}  // namespace tfhvd
