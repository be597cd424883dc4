// Stands in for highwayhash's header, which XLA's headers include and TensorFlow's wheels may lack.
// They name a hasher as the member of a class that we never make.
#pragma once

#define HH_TARGET_PREFERRED 0

namespace highwayhash {

template <unsigned kTarget>
class HighwayHashCatT;

// Complete, so that it can be a member; of no use, so that nobody makes one.
template <>
class HighwayHashCatT<HH_TARGET_PREFERRED> {
 public:
  HighwayHashCatT() = delete;
};

}  // namespace highwayhash
