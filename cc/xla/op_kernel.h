// TensorFlow's header of kernels that write XLA computations, without the half of XLA that it
// includes only for pointers to a client: that half would double the time to compile. For
// lowering.cc.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"

// Pretends that these headers were included.
#define XLA_CLIENT_CLIENT_H_
#define XLA_CLIENT_LOCAL_CLIENT_H_

namespace xla {

class Client;
class LocalClient;

}  // namespace xla

#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
