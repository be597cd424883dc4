// A function's, branch's or loop's computation while it is compiled: the calls of calls.h in it,
// and what the ops of one computation have to know of each other. For lowering.cc.
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

// A collective whose start is written.
struct Begun {
  std::vector<xla::XlaOp> results;
  std::vector<xla::XlaOp> kept;  // operands that are read until the collective is over
  xla::XlaOp pending;
  std::string name;  // with its process set
};

// What the ops of one computation have to know of each other while it is compiled.
class Computation : public tensorflow::ResourceBase {
 public:
  explicit Computation(xla::XlaOp run) : run(run) {}

  const xla::XlaOp run;  // the number of its execution

  // The deferred collectives that wait for their TfhvdDone.
  std::vector<Begun> deferred;

  // Gives up the deferred collective whose first result that is.
  bool Take(xla::XlaOp first, Begun* begun) {
    const auto found = std::find_if(deferred.begin(), deferred.end(), [first](const Begun& one) {
      return one.results[0].IsIdenticalTo(first);
    });
    if (found == deferred.end()) return false;
    *begun = std::move(*found);
    deferred.erase(found);
    return true;
  }

  // What the next done has to come after: the starts written so far, the done before it, and what
  // loops and branches since then have given. XLA runs a done as soon as it has its operands, and
  // nothing else until it returns; all that can be begun must be by then, for other ranks may wait
  // for just that.
  std::vector<xla::XlaOp> before_next_done;

  // By the name of what was begun: the token of its done, null until that is written.
  std::map<std::string, std::optional<xla::XlaOp>> names;

  // What the last loop or branch with collectives in it gave; invalid where there was none.
  xla::XlaOp last_region;

  std::string DebugString() const override { return "tfhvd's collectives of one computation"; }
};

// Row by row, as the engine takes its tensors.
inline xla::Shape RowMajor(const xla::Shape& shape) {
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(shape.element_type(), shape.dimensions());
}

inline xla::Shape Number() { return xla::ShapeUtil::MakeShapeWithDescendingLayout(xla::S64, {}); }

// Which result lies where which operand lay.
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
    // With an empty index beside it: the whole. GCC for Arm warns of a copy of an empty one.
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
  xla::XlaBuilder* const builder = ctx->builder();  // looked up where `make` is called under a lock
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
