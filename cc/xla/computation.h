// Computation: the computation of a function, branch or loop during its compilation: the calls of
// calls.h in it, and the state that its ops share. For lowering.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/xla/calls.h"
#include "cc/xla/op_kernel.h"
#include "cc/xla/version.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tfhvd {

// A collective whose start has been written.
struct Begun {
  std::vector<xla::XlaOp> results;
  std::vector<xla::XlaOp> kept;  // operands that must stay until the collective is over
  xla::XlaOp pending;
  std::string name;  // with its process set
};

// The state that the ops of one computation share during its compilation.
class Computation : public tensorflow::ResourceBase {
 public:
  explicit Computation(xla::XlaOp run) : run(run) {}

  const xla::XlaOp run;  // the number of its execution

  // The deferred collectives that wait for their TfhvdDone.
  std::vector<Begun> deferred;

  // Removes and returns the deferred collective whose first result is `first`.
  bool Take(xla::XlaOp first, Begun* begun) {
    const auto found = std::find_if(deferred.begin(), deferred.end(), [first](const Begun& one) {
      return one.results[0].IsIdenticalTo(first);
    });
    if (found == deferred.end()) return false;
    *begun = std::move(*found);
    deferred.erase(found);
    return true;
  }

  // The operands that the next done must come after: the starts written so far, the done before it,
  // and the results of loops and branches since then. XLA runs a done as soon as its operands
  // exist, and runs nothing else until it returns. Everything that can begin must have begun
  // before, because other ranks may wait for it.
  std::vector<xla::XlaOp> before_next_done;

  // By the name of a collective: the token of its done, nullopt until that is written.
  std::map<std::string, std::optional<xla::XlaOp>> names;

  // The result of the last loop or branch with collectives in it; invalid if there is none.
  xla::XlaOp last_region;

  std::string DebugString() const override { return "tfhvd's collectives of one computation"; }
};

// Row-major, as the engine takes its tensors.
inline xla::Shape RowMajor(const xla::Shape& shape) {
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(shape.element_type(), shape.dimensions());
}

inline xla::Shape Number() { return xla::ShapeUtil::MakeShapeWithDescendingLayout(xla::S64, {}); }

// Pairs of a result and the operand whose memory it uses.
using InPlace = std::vector<std::pair<int64_t, int64_t>>;

inline InPlace Leading(size_t count) {
  InPlace in_place;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) in_place.emplace_back(i, i);
  return in_place;
}

inline xla::XlaOp Call(xla::XlaBuilder* builder, const char* target,
                       const std::vector<xla::XlaOp>& operands,
                       const std::vector<xla::Shape>& shapes,
                       const std::vector<xla::Shape>& results, const std::string& attributes,
                       const InPlace& in_place) {
  std::vector<std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>> aliases;
  for (const auto& [result, operand] : in_place) {
    auto& alias = aliases.emplace_back();
    alias.first.push_back(result);
    // The second index is empty: the whole operand. GCC for Arm warns of a copy of an empty index.
    alias.second.first = operand;
  }
  return xla::CustomCallWithLayout(builder, target, operands,
                                   xla::ShapeUtil::MakeTupleShape(results), shapes, attributes,
                                   /*has_side_effect=*/true, aliases,
                                   /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
                                   xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

inline absl::Status ComputationOf(tensorflow::XlaOpKernelContext* ctx, Computation** computation) {
  tensorflow::OpKernelContext* inner = ctx->op_kernel_context();
  // Looked up here, because LookupOrCreate calls `make` under a lock.
  xla::XlaBuilder* const builder = ctx->builder();
  const std::string misfit = WhyXlaDoesNotFit();
  if (!misfit.empty()) return absl::FailedPreconditionError(misfit);
  const std::string name = "tfhvd/" + std::to_string(reinterpret_cast<uintptr_t>(builder));
  const auto make = [builder](Computation** made) {
    const xla::XlaOp begin = Call(builder, kBeginCall, {}, {}, {Number()}, "{}", {});
    *made = new Computation(xla::GetTupleElement(begin, 0));
    return absl::OkStatus();
  };
  return inner->step_container()->LookupOrCreate<Computation>(inner->resource_manager(), name,
                                                              computation, make);
}

}  // namespace tfhvd
