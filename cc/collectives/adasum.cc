#include "cc/collectives/adasum.h"

#include <cstring>
#include <vector>

#include "cc/flow/request.h"
#include "cc/numeric/float_mode.h"
#include "cc/numeric/half.h"

namespace tfhvd {
namespace {

double Load(const char* from, int64_t i, DType dtype) {
  switch (dtype) {
    case DType::kFloat16: {
      Float16 x;
      std::memcpy(&x, from + i * 2, sizeof x);
      return static_cast<double>(ToFloat(x));
    }
    case DType::kBFloat16: {
      BFloat16 x;
      std::memcpy(&x, from + i * 2, sizeof x);
      return static_cast<double>(ToFloat(x));
    }
    case DType::kFloat32: {
      float x;
      std::memcpy(&x, from + i * 4, sizeof x);
      return static_cast<double>(x);
    }
    default: {
      double x;
      std::memcpy(&x, from + i * 8, sizeof x);
      return x;
    }
  }
}

void Store(double value, char* to, int64_t i, DType dtype) {
  const float narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat16: {
      const Float16 x = ToFloat16(narrow);
      std::memcpy(to + i * 2, &x, sizeof x);
      return;
    }
    case DType::kBFloat16: {
      const BFloat16 x = ToBFloat16(narrow);
      std::memcpy(to + i * 2, &x, sizeof x);
      return;
    }
    case DType::kFloat32:
      std::memcpy(to + i * 4, &narrow, sizeof narrow);
      return;
    default:
      std::memcpy(to + i * 8, &value, sizeof value);
  }
}

using Vector = std::vector<double>;

// The dot products a.b, a.a and b.b of two vectors, over a part of the elements.
struct Dots {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
};

Dots DotsOf(const Vector& a, const Vector& b) {
  const IeeeFloats ieee;
  Dots d;
  for (size_t i = 0; i < a.size(); ++i) {
    d.ab += a[i] * b[i];
    d.aa += a[i] * a[i];
    d.bb += b[i] * b[i];
  }
  return d;
}

// a becomes adasum(a, b). A vector of zeros leaves the other one unchanged.
void Combine(const Dots& d, const Vector& b, Vector* a) {
  const IeeeFloats ieee;
  const double x = d.aa == 0.0 ? 1.0 : 1.0 - d.ab / (2.0 * d.aa);
  const double y = d.bb == 0.0 ? 1.0 : 1.0 - d.ab / (2.0 * d.bb);
  for (size_t i = 0; i < b.size(); ++i) (*a)[i] = x * (*a)[i] + y * b[i];
}

// Reads the ranks' vectors, which are one after the other in memory->brought, each times `factor`.
void Scale(int64_t count, DType dtype, double factor, AdasumMemory* memory) {
  const IeeeFloats ieee;
  const char* from = memory->brought.data();
  for (Vector& vector : memory->vectors) {
    for (int64_t i = 0; i < count; ++i) vector[i] = factor * Load(from, i, dtype);
    from += count * ItemSize(dtype);
  }
}

void StoreAll(const Vector& values, double factor, char* to, DType dtype) {
  const IeeeFloats ieee;
  for (size_t i = 0; i < values.size(); ++i) {
    Store(factor * values[i], to, static_cast<int64_t>(i), dtype);
  }
}

// Combines the ranks' vectors, of which this rank holds its part of the elements, into the first
// one.
Status CombineAll(Communicator* communicator, std::vector<Vector>* vectors) {
  const size_t size = vectors->size();
  Reduction sum;
  for (size_t distance = 1; distance < size; distance *= 2) {
    std::vector<Dots> dots;
    for (size_t r = 0; r + distance < size; r += 2 * distance) {
      dots.push_back(DotsOf((*vectors)[r], (*vectors)[r + distance]));
    }
    static_assert(sizeof(Dots) == 3 * sizeof(double), "they travel as doubles");
    TFHVD_RETURN_IF_ERROR(communicator->AllReduce(
        dots.data(), dots.data(), static_cast<int64_t>(3 * dots.size()), DType::kFloat64, sum));
    for (size_t p = 0; p < dots.size(); ++p) {
      const size_t r = 2 * distance * p;
      Combine(dots[p], (*vectors)[r + distance], &(*vectors)[r]);
    }
  }
  return Status::Ok();
}

}  // namespace

Status AdasumMemory::Reserve(int64_t count, DType dtype, int rank, int size) {
  const int64_t mine = RowsOfPart(count, size, rank);
  try {
    brought.resize(static_cast<size_t>(mine * ItemSize(dtype) * size));
    vectors.assign(static_cast<size_t>(size), Vector(static_cast<size_t>(mine)));
  } catch (const std::bad_alloc&) {
    return Status::Unavailable("no memory to work in");
  }
  return Status::Ok();
}

Status Adasum(Communicator* communicator, const void* in, void* out, int64_t count, DType dtype,
              const Reduction& scales, AdasumMemory* memory) {
  const int size = communicator->size();
  const int64_t item = ItemSize(dtype);
  std::vector<int64_t> parts;  // bytes, by rank
  for (int r = 0; r < size; ++r) parts.push_back(RowsOfPart(count, size, r) * item);
  const int64_t mine = parts[static_cast<size_t>(communicator->rank())];
  char* const brought = memory->brought.data();
  TFHVD_RETURN_IF_ERROR(
      communicator->AllToAll(in, parts, brought, std::vector<int64_t>(parts.size(), mine)));
  Scale(mine / item, dtype, scales.prescale, memory);
  TFHVD_RETURN_IF_ERROR(CombineAll(communicator, &memory->vectors));
  StoreAll(memory->vectors[0], scales.postscale, brought, dtype);
  return communicator->AllGather(brought, out, parts);
}

}  // namespace tfhvd
