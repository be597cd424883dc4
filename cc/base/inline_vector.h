// InlineVector: a list of a few plain values, which allocates memory only for more than N.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace tfhvd {

template <typename T, size_t N>
class InlineVector {
 public:
  static_assert(std::is_trivially_copyable<T>::value, "values are copied as bytes");

  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return size_ <= N ? few_ : many_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t i) { return size_ <= N ? few_[i] : many_[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }

  void push_back(const T& value) {
    if (size_ == N) many_.assign(few_, few_ + N);
    if (size_ < N) {
      few_[size_] = value;
    } else {
      many_.push_back(value);
    }
    ++size_;
  }

  void assign(size_t count, const T& value) {
    clear();
    for (size_t i = 0; i < count; ++i) push_back(value);
  }

  void clear() {
    size_ = 0;
    many_.clear();
  }

 private:
  T few_[N] = {};
  std::vector<T> many_;  // all values, if there are more than N
  size_t size_ = 0;
};

}  // namespace tfhvd
