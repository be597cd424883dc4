#include "cc/numeric/cpu.h"

#include <cstring>

#include "cc/numeric/compat.h"

namespace tfhvd {
namespace {

using Copier = void (*)(char* to, const char* from, int64_t bytes);

// For fewer bytes the caches are better.
constexpr int64_t kLeast = 4096;

struct Choice {
  Copier copy;
  const char* name;
};

Choice Choose() {
  if (compat::HasAvx512()) return {compat::Avx512::Stream, "avx512"};
  if (compat::HasAvx2()) return {compat::Avx2::Stream, "avx2"};
  return {compat::Plain::Stream, "plain"};
}

const Choice& TheChoice() {
  static const Choice choice = Choose();
  return choice;
}

}  // namespace

void CpuRelax() { compat::Pause(); }

void StreamCopy(void* to, const void* from, int64_t bytes) {
  if (bytes < kLeast) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  TheChoice().copy(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  compat::StoreFence();
}

const char* StreamCopyName() { return TheChoice().name; }

}  // namespace tfhvd
