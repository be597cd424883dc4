// TfhvdTopologyValue: a number such as this process's rank, read when the operation runs: a saved
// graph, or one that another rank runs, gives the value of the rank that runs it.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cc/process/process.h"
#include "cc/tf/status.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdTopologyValue")
    .Output("value: int32")
    .Attr("what: {'rank', 'local_rank', 'size', 'local_size', 'included', 'index'}")
    .Attr("process_set_id: int = 0")
    .SetIsStateful()  // not folded into a constant
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(
        "This process's rank, the number of ranks, or of a process set: whether it is in it (1 or "
        "0), and how many of its ranks are below this one.");

class TopologyValueKernel : public tensorflow::OpKernel {
 public:
  explicit TopologyValueKernel(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("what", &what_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("process_set_id", &process_set_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const std::shared_ptr<Engine> engine = ProcessEngine();
    OP_REQUIRES(ctx, engine != nullptr, ToAbsl(NotInitialized()));
    const ProcessSetTable::Members members = engine->process_sets().Find(process_set_);
    OP_REQUIRES(ctx, members != nullptr, ToAbsl(engine->process_sets().WhyMissing(process_set_)));
    tensorflow::Tensor* value = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &value));
    value->scalar<int32_t>()() = Value(engine->topology(), *members);
  }

 private:
  int Value(const Topology& topology, const std::vector<int>& members) const {
    if (what_ == "rank") return topology.rank;
    if (what_ == "local_rank") return topology.local_rank;
    if (what_ == "local_size") return topology.local_size;
    if (what_ == "size") return static_cast<int>(members.size());
    if (what_ == "index") {
      return static_cast<int>(std::lower_bound(members.begin(), members.end(), topology.rank) -
                              members.begin());
    }
    return std::binary_search(members.begin(), members.end(), topology.rank) ? 1 : 0;
  }

  std::string what_;
  int process_set_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("TfhvdTopologyValue").Device(tensorflow::DEVICE_CPU),
                        TopologyValueKernel);

}  // namespace
}  // namespace tfhvd
